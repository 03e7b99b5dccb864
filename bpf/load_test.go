package bpf_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// Verification is paid once a node, and on every run of every test. Before Linux 6.4 the verifier takes
// every scalar of a program with calls for precise, and walks more. See DESIGN.md for what each kernel walks.
const (
	maxVerified    = 60000
	maxVerifiedOld = 250000
)

func TestVerifiedInstructions(t *testing.T) {
	testenv.RequireRoot(t)
	stats, err := bpf.VerifierStats(bpf.Sizes{Flows4: 4096, Flows6: 4096, Frags: 4096, Events: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	version, err := features.LinuxVersionCode()
	if err != nil {
		t.Fatal(err)
	}
	ceiling := maxVerified
	if version < 6<<16|4<<8 {
		ceiling = maxVerifiedOld
	}
	for _, name := range bpf.ProgNames() {
		n := 0
		for line := range strings.Lines(stats[name]) {
			if _, err := fmt.Sscanf(line, "processed %d insns", &n); err == nil {
				break
			}
		}
		t.Logf("%s: %d instructions verified, ceiling is %d", name, n, ceiling)
		if n == 0 || n > ceiling {
			t.Errorf("%s: %d instructions verified, ceiling is %d\n%s", name, n, ceiling, stats[name])
		}
	}
}

// Everything that was loaded can be found by name, and has types.
func TestObjectsAreNamed(t *testing.T) {
	r := newRig(t)
	if len(r.Maps) != len(bpf.MapNames()) {
		t.Errorf("%d maps, %d names", len(r.Maps), len(bpf.MapNames()))
	}
	for _, name := range bpf.MapNames() {
		info, err := r.Maps[name].Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Name != name {
			t.Errorf("map %s is named %s", name, info.Name)
		}
		// Maps of maps and ring buffers have none in any kernel.
		if _, ok := info.BTFID(); !ok && info.Type != ebpf.ArrayOfMaps && info.Type != ebpf.RingBuf {
			t.Errorf("map %s has no BTF", name)
		}
	}
	for i, p := range []*ebpf.Program{r.FromPod, r.ToPod} {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Name != bpf.ProgNames()[i] {
			t.Errorf("program %s is named %s", bpf.ProgNames()[i], info.Name)
		}
		if _, ok := info.BTFID(); !ok {
			t.Errorf("program %s has no BTF", info.Name)
		}
	}
}

func TestSizes(t *testing.T) {
	testenv.RequireRoot(t)
	o, err := bpf.Load(bpf.Sizes{Flows4: 1000, Flows6: 2000, Frags: 300, Events: 8192})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for name, want := range map[string]uint32{"flows4": 1000, "flows6": 2000, "frags": 300, "events": 8192} {
		if got := o.Maps[name].MaxEntries(); got != want {
			t.Errorf("%s: %d entries, want %d", name, got, want)
		}
	}
	if _, err := bpf.Load(bpf.Sizes{Events: 5}); err == nil || !strings.Contains(err.Error(), "events") {
		t.Errorf("a ring of 5 bytes: %v", err)
	}
}

// A new set of maps has timeouts and the two default slots, so that nothing depends on who is first.
func TestFreshMaps(t *testing.T) {
	r := newRig(t)
	if n := r.node(); n.Timeouts != bpf.DefaultTimeouts().Stamps() || slices.Contains(n.Timeouts[:], 0) || n.NextGeneration == 0 {
		t.Errorf("node is %+v", n)
	}
	allow, deny := r.slots.At(bpf.SlotDefaultAllow).Generation, r.slots.At(bpf.SlotDefaultDeny).Generation
	if next := r.node().NextGeneration + 1; allow == deny || next <= max(allow, deny) {
		t.Errorf("generations %d and %d, next is %d", allow, deny, next)
	}
	for slot, onMiss := range map[int]uint32{bpf.SlotDefaultAllow: bpf.ResAllow, bpf.SlotDefaultDeny: 0} {
		s := r.slots.At(slot)
		if s.OnMiss != [2]uint32{onMiss, onMiss} || s.Flags != bpf.SlotUsed|bpf.SlotComplete || s.Generation == 0 {
			t.Errorf("slot %d is %+v", slot, s)
		}
	}
}
