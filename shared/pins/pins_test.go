package pins_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/testenv"
)

func TestPaths(t *testing.T) {
	d := pins.New("/sys/fs/bpf")
	got := []string{d.Root(), d.Map("pod_state"), d.Prog("to_pod"), d.Link(4294967295, "from_pod")}
	want := []string{
		"/sys/fs/bpf/latch/v1",
		"/sys/fs/bpf/latch/v1/pod_state",
		"/sys/fs/bpf/latch/v1/prog/to_pod",
		"/sys/fs/bpf/latch/v1/link/4294967295_from_pod",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBadNamesPanic(t *testing.T) {
	for _, name := range []string{"", "a.b", "a/b", "..", "A", "é", "tmp_1", "a b"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q: no panic", name)
				}
			}()
			pins.New("/x").Map(name)
		}()
	}
}

func TestEnsureBPFFS(t *testing.T) {
	testenv.RequireRoot(t)
	dir := filepath.Join(t.TempDir(), "a", "bpf")
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	for range 2 {
		if err := pins.EnsureBPFFS(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatalf("was not mounted: %v", err)
	}
	if err := unix.Unmount(dir, 0); err == nil {
		t.Error("was mounted twice")
	}

	below := filepath.Join(testenv.BPFFS(t), "sub")
	if err := pins.EnsureBPFFS(below); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(below, 0); err == nil {
		t.Error("mounted inside a bpffs")
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := pins.EnsureBPFFS(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("on a file: %v", err)
	}

	used := filepath.Dir(file)
	if err := pins.EnsureBPFFS(used); err == nil || !strings.Contains(err.Error(), used) {
		t.Errorf("on a folder with a file in it: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("what was in the folder is hidden: %v", err)
	}
}

func made(t *testing.T) pins.Dir {
	t.Helper()
	d := pins.New(testenv.BPFFS(t))
	for range 2 {
		if err := d.Make(); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func newMap(t *testing.T) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "latch_t", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func mapID(t *testing.T, m *ebpf.Map) ebpf.MapID {
	t.Helper()
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return id
}

// A reader finds the old object or the new one at every instant, and no temporary pin stays.
func TestPinAtomicReplaces(t *testing.T) {
	d := made(t)
	path := d.Map("m")
	maps := []*ebpf.Map{newMap(t), newMap(t)}
	if err := pins.PinAtomic(maps[0], path); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			m, err := pins.LoadMap(path, nil)
			if err != nil {
				done <- err
				return
			}
			_ = m.Close()
		}
	}()
	for i := range 500 {
		if err := pins.PinAtomic(maps[i%2], path); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Errorf("reader: %v", err)
	}
	found, err := pins.LoadMap(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	if mapID(t, found) != mapID(t, maps[1]) {
		t.Error("not the map that was pinned last")
	}
	entries, _ := os.ReadDir(d.Root())
	if len(entries) != 3 { // m, prog, link
		t.Errorf("left over: %v", entries)
	}
}

// An object opened from one pin can be pinned elsewhere without losing the first.
func TestPinAtomicKeepsOtherPins(t *testing.T) {
	d := made(t)
	if err := pins.PinAtomic(newMap(t), d.Map("a")); err != nil {
		t.Fatal(err)
	}
	m, err := pins.LoadMap(d.Map("a"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, name := range []string{"b", "a", "a"} {
		if err := pins.PinAtomic(m, d.Map(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if _, err := os.Stat(d.Map(name)); err != nil {
			t.Error(err)
		}
	}
}

func TestLoadAbsentAndWrongKind(t *testing.T) {
	d := made(t)
	_, err := pins.LoadMap(d.Map("none"), nil)
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "open pin "+d.Map("none")+": ") {
		t.Errorf("absent map: %v", err)
	}
	if _, err := pins.LoadProgram(d.Prog("none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent program: %v", err)
	}
	if _, err := pins.LoadLink(d.Link(1, "to_pod"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent link: %v", err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "latch_t", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := pins.PinAtomic(p, d.Prog("p")); err != nil {
		t.Fatal(err)
	}
	if _, err := pins.LoadMap(d.Prog("p"), nil); err == nil {
		t.Error("a program was opened as a map")
	}
	back, err := pins.LoadProgram(d.Prog("p"), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = back.Close()
	for range 2 {
		if err := pins.Remove(d.Prog("p")); err != nil {
			t.Error(err)
		}
	}
}

func TestPinOutsideBPFFS(t *testing.T) {
	testenv.RequireRoot(t)
	if err := pins.PinAtomic(newMap(t), filepath.Join(t.TempDir(), "m")); err == nil {
		t.Error("pinned on an ordinary file system")
	}
}

func TestLayoutsAndRemoval(t *testing.T) {
	d := made(t)
	if newer, err := d.NewerLayouts(); err != nil || len(newer) != 0 {
		t.Errorf("newer layouts: %v, %v", newer, err)
	}
	for _, dir := range []string{"v2", "v10", "v02", "vx", "other"} {
		if err := os.Mkdir(filepath.Join(d.Root(), "..", dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	newer, err := d.NewerLayouts()
	if diff := cmp.Diff([]int{2, 10}, newer); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if err := pins.PinAtomic(newMap(t), d.Map("m")); err != nil {
		t.Fatal(err)
	}
	if err := d.RemoveAll(); err != nil {
		t.Fatal(err)
	}
	if found, err := d.Layouts(); err != nil || !cmp.Equal(found, []int{2, 10}) {
		t.Errorf("left: %v, %v", found, err)
	}
	for _, dir := range []string{"v2", "v10", "v02", "vx", "other"} {
		if err := os.Remove(filepath.Join(d.Root(), "..", dir)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := d.RemoveAll(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Dir(d.Root())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("tree is still there: %v", err)
	}
	if found, err := d.Layouts(); err != nil || len(found) != 0 {
		t.Errorf("layouts of nothing: %v, %v", found, err)
	}
}

func TestSweepTemp(t *testing.T) {
	d := made(t)
	if err := pins.PinAtomic(newMap(t), d.Map("m")); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(filepath.Dir(d.Link(1, "to_pod")), "tmp_0123456789abcdef")
	if err := newMap(t).Pin(left); err != nil {
		t.Fatal(err)
	}
	if links, err := d.Links(); err != nil || len(links) != 0 {
		t.Errorf("temporary pin counts as a link: %v, %v", links, err)
	}
	if err := d.SweepTemp(time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("young temporary pin was removed: %v", err)
	}
	if err := d.SweepTemp(0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("old temporary pin: %v", err)
	}
	if _, err := os.Stat(d.Map("m")); err != nil {
		t.Error(err)
	}
}
