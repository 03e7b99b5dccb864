package bpf_test

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// The short questions get the answers of the long ones.
func TestInfo(t *testing.T) {
	testenv.RequireRoot(t)
	o, err := bpf.Load(bpf.Sizes{Flows4: 1024, Flows6: 1024, Frags: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for name, m := range o.Maps {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		want, _ := info.ID()
		if got, err := bpf.MapID(m); err != nil || got != want {
			t.Errorf("map %s: id %d, %v, want %d", name, got, err, want)
		}
	}
	for _, p := range []*ebpf.Program{o.FromPod, o.ToPod} {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		want, _ := info.ID()
		if got, err := bpf.ProgramID(p); err != nil || got != want {
			t.Errorf("%s: id %d, %v, want %d", info.Name, got, err, want)
		}
		maps, _ := info.MapIDs()
		if got, err := bpf.ProgramMaps(p); err != nil || !slices.Equal(got, maps) {
			t.Errorf("%s: maps %v, %v, want %v", info.Name, got, err, maps)
		}
	}
}
