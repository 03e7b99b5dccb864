package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"golang.org/x/sys/unix"
)

// inventory is what there is, by a name that people can read.
type inventory map[string]bool

func (i inventory) add(format string, args ...any) { i[fmt.Sprintf(format, args...)] = true }

// leaksSince lists what is there now and was not before. Programs are apart: the kernel does not tell
// whose they are.
func leaksSince(dir string, before inventory) (leaks, programs []string, err error) {
	now, err := takeInventory(dir)
	for what := range now {
		switch {
		case before[what]:
		case strings.HasPrefix(what, "program "):
			programs = append(programs, what)
		default:
			leaks = append(leaks, what)
		}
	}
	slices.Sort(leaks)
	slices.Sort(programs)
	return leaks, programs, err
}

// machines are folders that Latch uses on a node when nobody names others: tests have theirs. Of those that
// others use, too, and make, like container runtimes, only what is in them counts.
var (
	machines = []string{"/sys/fs/bpf/latch", "/var/log/latch", "/run/latch", "/etc/latch"}
	runtimes = []string{"/run/netns", "/etc/cni/net.d", "/var/lib/cni"}
)

// takeInventory looks at interfaces of the namespace that the tests run in, files and mounts below
// their temporary folder, what is in the machine's own folders, processes that the tests started,
// kernel objects that this process holds, and programs of the project that anybody holds.
func takeInventory(dir string) (inventory, error) {
	i := inventory{}
	errs := []error{i.links(), i.mounts(dir), i.processes(dir), i.descriptors(), i.programs()}
	for _, root := range slices.Concat([]string{dir}, machines, runtimes) {
		errs = append(errs, i.files(root))
	}
	for _, root := range runtimes {
		delete(i, "file "+root)
	}
	return i, errors.Join(errs...)
}

func (i inventory) links() error {
	links, err := netlinksafe.LinkList()
	for _, l := range links {
		i.add("interface %s (index %d)", l.Attrs().Name, l.Attrs().Index)
	}
	return err
}

func (i inventory) mounts(dir string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		own, fs, ok := strings.Cut(s.Text(), " - ")
		if f := strings.Fields(own); ok && len(f) > 4 {
			if kind, _, _ := strings.Cut(fs, " "); strings.HasPrefix(f[4], dir) {
				i.add("mount of %s on %s", kind, f[4])
			}
		}
	}
	return nil
}

// processes lists those that have the suite's temporary folder in their environment, as all have that it
// starts, and those that these start.
func (i inventory) processes(dir string) error {
	found, err := filepath.Glob("/proc/[0-9]*/environ")
	self := fmt.Sprintf("/proc/%d/environ", os.Getpid())
	for _, path := range found {
		env, _ := os.ReadFile(path) // gone, or a zombie
		if path == self || !bytes.Contains(append([]byte{0}, env...), []byte("\x00TMPDIR="+dir+"\x00")) {
			continue
		}
		name, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "comm"))
		i.add("process %s: %s", strings.Split(path, "/")[2], bytes.TrimSpace(name))
	}
	return err
}

func (i inventory) files(root string) error {
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			i.add("file %s", path)
		}
		return err
	})
	return err
}

// descriptors lists bpf objects and network namespaces that this process has not closed.
func (i inventory) descriptors() error {
	fds, err := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		path := "/proc/self/fd/" + fd.Name()
		target, err := os.Readlink(path)
		if err != nil { // the descriptor of this very listing
			continue
		}
		var st unix.Statfs_t
		namespace := unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
		if namespace || strings.HasPrefix(target, "anon_inode:bpf") {
			i.add("descriptor %s of this process: %s", fd.Name(), target)
		}
	}
	return err
}

// programs lists those that the project loads, by their ids: attached, pinned or held by a process.
func (i inventory) programs() error {
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) { // freed since
			continue
		}
		if err != nil {
			return err
		}
		info, err := p.Info()
		_ = p.Close()
		if err != nil {
			return err
		}
		if isOurs(info.Name) && !heldElsewhere(id) {
			i.add("program %s (id %d)", info.Name, id)
		}
	}
}

func isOurs(program string) bool {
	return program == "from_pod" || program == "to_pod" || strings.HasPrefix(program, "latch")
}

// heldElsewhere tells whether another process holds the program: then it is that process's.
func heldElsewhere(id ebpf.ProgramID) bool {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is good
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	for _, l := range links {
		if target, err := os.Readlink(l); err != nil || target != "anon_inode:bpf-prog" || strings.HasPrefix(l, self) {
			continue
		}
		info, _ := os.ReadFile(strings.Replace(l, "/fd/", "/fdinfo/", 1)) // gone: holds nothing
		if strings.Contains(string(info), fmt.Sprintf("prog_id:\t%d\n", id)) {
			return true
		}
	}
	return false
}
