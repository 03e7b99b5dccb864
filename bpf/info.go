package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// The info of cilium/ebpf holds everything that the kernel tells: of a program also its instructions,
// before and after the JIT, and its debug info. That is a hundred kilobytes and a third of a millisecond,
// for an id. These ask for no more than they return.

// programInfo is the beginning of struct bpf_prog_info.
type programInfo struct {
	kind, id           uint32
	tag                [8]byte
	jitedLen, insnsLen uint32
	jited, insns       uint64
	loadTime           uint64
	uid                uint32
	maps               uint32 // how many; in: how many there is room for
	mapIDs             uint64
}

// mapInfo is the beginning of struct bpf_map_info.
type mapInfo struct {
	kind, id uint32
}

// ProgramID is the kernel's id of a program.
func ProgramID(p *ebpf.Program) (ebpf.ProgramID, error) {
	info := new(programInfo)
	if err := objectInfo(p.FD(), unsafe.Pointer(info), unsafe.Sizeof(*info)); err != nil {
		return 0, fmt.Errorf("read program info: %w", err)
	}
	runtime.KeepAlive(p)
	return ebpf.ProgramID(info.id), nil
}

// ProgramMaps are the ids of the maps that a program works on.
func ProgramMaps(p *ebpf.Program) ([]ebpf.MapID, error) {
	ids := make([]ebpf.MapID, 64) // the verifier's limit
	var pinned runtime.Pinner
	pinned.Pin(&ids[0])
	defer pinned.Unpin()
	info := &programInfo{maps: uint32(len(ids)), mapIDs: uint64(uintptr(unsafe.Pointer(&ids[0])))}
	if err := objectInfo(p.FD(), unsafe.Pointer(info), unsafe.Sizeof(*info)); err != nil {
		return nil, fmt.Errorf("read program info: %w", err)
	}
	runtime.KeepAlive(p)
	return ids[:min(int(info.maps), len(ids))], nil
}

// MapID is the kernel's id of a map.
func MapID(m *ebpf.Map) (ebpf.MapID, error) {
	info := new(mapInfo)
	if err := objectInfo(m.FD(), unsafe.Pointer(info), unsafe.Sizeof(*info)); err != nil {
		return 0, fmt.Errorf("read map info: %w", err)
	}
	runtime.KeepAlive(m)
	return ebpf.MapID(info.id), nil
}

// haveSyscall says so when the kernel has no bpf system call, or not for us: what fails later for want of
// it names anything but that.
func haveSyscall() error {
	err := objectInfo(-1, unsafe.Pointer(new(mapInfo)), unsafe.Sizeof(mapInfo{}))
	if errors.Is(err, unix.EBADF) || errors.Is(err, unix.EBADFD) { // of the descriptor: the call is there
		return nil
	}
	return fmt.Errorf("use the bpf system call: %w", err)
}

// objectInfo is BPF_OBJ_GET_INFO_BY_FD. The kernel writes no more than size.
func objectInfo(fd int, info unsafe.Pointer, size uintptr) error {
	var pinned runtime.Pinner
	pinned.Pin((*byte)(info))
	defer pinned.Unpin()
	attr := struct {
		fd, size uint32
		info     uint64
	}{uint32(fd), uint32(size), uint64(uintptr(info))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return errno
	}
	return nil
}
