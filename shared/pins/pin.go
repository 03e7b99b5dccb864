package pins

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// tempPrefix starts the names of pins that are not yet in their place.
const tempPrefix = "tmp_"

// ErrKind says that a pin names an object of another kind: somebody else has put it there.
var ErrKind = errors.New("pinned object is of another kind")

// Object is a program, map or link.
type Object interface {
	FD() int
}

// PinAtomic pins the object at path, in place of whatever is pinned there: the path leads to the old
// object or to the new one at every instant. Safe to call again. It does not change the object's own
// idea of where it is pinned, since that of a map or program opened from a pin would move its pin.
func PinAtomic(o Object, path string) error {
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s%016x", tempPrefix, rand.Uint64()))
	if err := pin(o, temp); err != nil {
		return fmt.Errorf("pin %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("pin %s: %w", path, err)
	}
	return nil
}

// pin is BPF_OBJ_PIN.
func pin(o Object, path string) error {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	attr := struct {
		pathname  uint64
		fd        uint32
		fileFlags uint32
	}{pathname: uint64(uintptr(unsafe.Pointer(name))), fd: uint32(o.FD())}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_PIN, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(name)
	runtime.KeepAlive(o)
	if errno != 0 {
		return errno
	}
	return nil
}

// LoadMap opens a pinned map. The error wraps os.ErrNotExist when there is no pin.
func LoadMap(path string, opts *ebpf.LoadPinOptions) (*ebpf.Map, error) {
	return opened(path, opts, ebpf.LoadPinnedMap)
}

// LoadProgram opens a pinned program. The error wraps os.ErrNotExist when there is no pin.
func LoadProgram(path string, opts *ebpf.LoadPinOptions) (*ebpf.Program, error) {
	return opened(path, opts, loadProgram)
}

// loadProgram is ebpf.LoadPinnedProgram, which makes a map at its first call to find out whether objects
// can have names.
func loadProgram(path string, opts *ebpf.LoadPinOptions) (*ebpf.Program, error) {
	fd, err := getKind(path, opts, "bpf-prog")
	if err != nil {
		return nil, err
	}
	return ebpf.NewProgramFromFD(fd)
}

// loadLink is link.LoadPinnedLink with an error that can be told from others when it is no link.
func loadLink(path string, opts *ebpf.LoadPinOptions) (link.Link, error) {
	fd, err := getKind(path, opts, "bpf-link")
	if err != nil {
		return nil, err
	}
	return link.NewFromFD(fd)
}

// getKind opens a pin that must be of one kind, in the kernel's words.
func getKind(path string, opts *ebpf.LoadPinOptions, kind string) (int, error) {
	fd, err := get(path, opts.Marshal())
	if err != nil {
		return 0, err
	}
	found, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err == nil && found != "anon_inode:"+kind {
		err = fmt.Errorf("%w: %s, not %s", ErrKind, found, kind)
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// get is BPF_OBJ_GET.
func get(path string, flags uint32) (int, error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return 0, err
	}
	attr := struct {
		pathname      uint64
		fd, fileFlags uint32
	}{pathname: uint64(uintptr(unsafe.Pointer(name))), fileFlags: flags}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(name)
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// LoadLink opens a pinned link. The error wraps os.ErrNotExist when there is no pin, ErrKind when it is
// the pin of something else. A link opens even when its device is gone.
func LoadLink(path string, opts *ebpf.LoadPinOptions) (link.Link, error) {
	return opened(path, opts, loadLink)
}

func opened[T any](path string, opts *ebpf.LoadPinOptions, load func(string, *ebpf.LoadPinOptions) (T, error)) (T, error) {
	o, err := load(path, opts)
	if err != nil {
		return o, fmt.Errorf("open pin %s: %w", path, err)
	}
	return o, nil
}

// Remove removes a pin. Nothing there is success.
func Remove(path string) error {
	if err := ignoreAbsent(os.Remove(path)); err != nil {
		return fmt.Errorf("remove pin: %w", err)
	}
	return nil
}
