package enforce

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// Programs of another build are replaced by ours on every interface, while flows, bindings and rules
// stay; the same programs are left alone.
func TestUpgrade(t *testing.T) {
	g := newGround(t)
	g.pinOtherBuild()
	first := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	g.wantVerdicts("programs of another build", false, false)
	mapsBefore := (*g.e.objects.inodes.Load())[g.e.pins.Map("flows4")]

	for i, want := range []bool{true, false} {
		upgraded, err := g.e.Upgrade(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if upgraded != want {
			t.Errorf("call %d: upgraded %v, want %v", i+1, upgraded, want)
		}
	}
	g.wantVerdicts("pinned, not attached yet", false, false)
	r := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true})
	g.wantVerdicts("attached", true, false)
	if r.Create.Slot != first.Create.Slot || r.Changed {
		t.Errorf("rules were written again: %+v", r)
	}
	if (*g.e.objects.inodes.Load())[g.e.pins.Map("flows4")] != mapsBefore {
		t.Error("the flow table was replaced")
	}
}

// pinOtherBuild pins programs of "another build": on the same maps, and more of its own, they drop everything.
func (g *ground) pinOtherBuild(own ...*ebpf.Map) {
	g.t.Helper()
	maps := g.e.objects.maps
	for _, name := range bpf.ProgNames() {
		ins := asm.Instructions{asm.LoadMapPtr(asm.R1, maps["pod_state"].FD()), asm.LoadMapPtr(asm.R1, maps["slots"].FD())}
		for _, m := range own {
			ins = append(ins, asm.LoadMapPtr(asm.R1, m.FD()))
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "GPL",
			Instructions: append(ins, asm.Mov.Imm(asm.R0, 2), asm.Return())})
		if err != nil {
			g.t.Fatal(err)
		}
		if err := pins.PinAtomic(p, g.e.pins.Prog(name)); err != nil {
			g.t.Fatal(err)
		}
		_ = p.Close()
	}
}

// An early build of the layout has not all maps. They are made beside its own, which stay.
func TestUpgradeAddsMaps(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	g.pinOtherBuild()
	for _, name := range bpf.LaterMaps() {
		if err := os.Remove(g.e.pins.Map(name)); err != nil {
			t.Fatal(err)
		}
	}
	before := *g.e.objects.inodes.Load()
	_ = g.e.Close()
	g.open()
	for path, inode := range *g.e.objects.inodes.Load() {
		later := slices.Contains(bpf.LaterMaps(), filepath.Base(path))
		if _, isProg := g.e.objects.progs[filepath.Base(path)]; isProg {
			continue
		}
		if kept := inode == before[path]; kept == later {
			t.Errorf("%s: kept %v", path, kept)
		}
	}
	if upgraded, err := g.e.Upgrade(ctx); err != nil || !upgraded {
		t.Errorf("upgraded %v, %v", upgraded, err)
	}
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true})
	g.wantVerdicts("upgraded", true, false)
}

// A later build of the layout has more maps. This build takes over from it, too, with all that they share; a
// map that is not pinned beside the others is not the layout's.
func TestUpgradeFromLaterMaps(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	later, err := ebpf.NewMap(&ebpf.MapSpec{Name: "later", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	g.pinOtherBuild(later)
	if _, err := openObjects(g.e.pins, false); !unusable(err) {
		t.Errorf("opened with a map that is not pinned: %v", err)
	}
	if err := pins.PinAtomic(later, g.e.pins.Map("later")); err != nil {
		t.Fatal(err)
	}
	before := *g.e.objects.inodes.Load()
	_ = g.e.Close()
	g.open()
	for path, inode := range *g.e.objects.inodes.Load() {
		if _, isProg := g.e.objects.progs[filepath.Base(path)]; !isProg && inode != before[path] {
			t.Errorf("%s was replaced", path)
		}
	}
	if upgraded, err := g.e.Upgrade(ctx); err != nil || !upgraded {
		t.Errorf("upgraded %v, %v", upgraded, err)
	}
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true})
	g.wantVerdicts("taken over", true, false)
}
