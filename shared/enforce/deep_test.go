package enforce

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/state"
)

// Whatever is changed by hand is found and mended by the next Apply that verifies, and said.
func TestVerifyMendsWhatWasChanged(t *testing.T) {
	word := func(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
	damages := []struct {
		name string
		do   func(*ground, *bpf.Slot, *bpf.PodState) error
	}{
		{"rule edited", func(g *ground, _ *bpf.Slot, _ *bpf.PodState) error {
			return g.innerRules(func(m *ebpf.Map, key bpf.RuleKey4, v bpf.RuleVal) error {
				v.In, v.Out = v.In|bpf.ResAllow, v.Out|bpf.ResAllow
				return m.Put(key, v)
			})
		}},
		{"rule deleted", func(g *ground, _ *bpf.Slot, _ *bpf.PodState) error {
			return g.innerRules(func(m *ebpf.Map, key bpf.RuleKey4, _ bpf.RuleVal) error { return m.Delete(key) })
		}},
		{"inner map deleted", func(g *ground, _ *bpf.Slot, _ *bpf.PodState) error {
			return g.e.objects.maps["rules_out4"].Delete(g.slot())
		}},
		{"result of a miss changed", func(_ *ground, s *bpf.Slot, _ *bpf.PodState) error {
			word(&s.OnMiss[bpf.Egress], bpf.ResAllow)
			return nil
		}},
		{"prefix lengths changed", func(_ *ground, s *bpf.Slot, _ *bpf.PodState) error {
			word(&s.Lens[bpf.Egress][bpf.V4], 0)
			return nil
		}},
		{"trie switched on", func(_ *ground, s *bpf.Slot, _ *bpf.PodState) error {
			word(&s.Trie[bpf.Egress][bpf.V4], 1)
			return nil
		}},
		{"hash changed", func(_ *ground, s *bpf.Slot, _ *bpf.PodState) error { s.RulesHash[3] ^= 1; return nil }},
		{"hash zeroed", func(_ *ground, s *bpf.Slot, _ *bpf.PodState) error { s.RulesHash = [32]byte{}; return nil }},
		{"flags cleared", func(_ *ground, s *bpf.Slot, _ *bpf.PodState) error { word(&s.Flags, 0); return nil }},
		{"owner changed", func(_ *ground, s *bpf.Slot, _ *bpf.PodState) error { s.Identifier[0] ^= 1; return nil }},
		{"pod_state cleared", func(_ *ground, _ *bpf.Slot, p *bpf.PodState) error { word(&p.Ifindex, 0); return nil }},
		{"pod_state moved to the default", func(_ *ground, _ *bpf.Slot, p *bpf.PodState) error {
			word(&p.Slot, bpf.SlotDefaultAllow)
			return nil
		}},
		{"pod id changed", func(_ *ground, _ *bpf.Slot, p *bpf.PodState) error { word(&p.Pod, 4711); return nil }},
		{"antiSpoof taken away", func(_ *ground, _ *bpf.Slot, p *bpf.PodState) error { word(&p.Flags, 0); return nil }},
		{"address changed", func(_ *ground, _ *bpf.Slot, p *bpf.PodState) error { word(&p.Addr4, 1); return nil }},
	}
	g := newGround(t)
	g.iface.AntiSpoof = true
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			o := g.e.objects
			if err := d.do(g, o.slots.At(int(g.slot())), o.pods.At(g.iface.Ifindex)); err != nil {
				t.Fatal(err)
			}
			result := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true})
			if len(result.Repaired) == 0 {
				t.Error("nothing was reported")
			}
			if again := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true}); len(again.Repaired) > 0 {
				t.Errorf("reported again: %q", again.Repaired)
			}
			g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
			g.wantVerdicts("after the repair", true, false)
		})
	}
}

func (g *ground) slot() uint32 {
	g.t.Helper()
	a, err := g.e.store.ReadAttachment("c1", "eth0")
	if err != nil {
		g.t.Fatal(err)
	}
	return a.Slot
}

// innerRules calls f with the pod's rule for all IPv4 addresses.
func (g *ground) innerRules(f func(*ebpf.Map, bpf.RuleKey4, bpf.RuleVal) error) error {
	var m *ebpf.Map
	if err := g.e.objects.maps["rules_out4"].Lookup(g.slot(), &m); err != nil {
		return err
	}
	defer m.Close()
	key := bpf.NewRuleKey4(netip.MustParsePrefix("0.0.0.0/0"))
	var v bpf.RuleVal
	if err := m.Lookup(key, &v); err != nil {
		return err
	}
	return f(m, key, v)
}

// The default slots and what the node counts with are mended by the sweep.
func TestSweepMendsDefaults(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	o := g.e.objects
	atomic.StoreUint32(&o.slots.At(bpf.SlotDefaultDeny).OnMiss[0], bpf.ResAllow)
	generation := atomic.LoadUint32(&o.slots.At(bpf.SlotDefaultDeny).Generation)
	atomic.StoreUint32(&o.slots.At(bpf.SlotDefaultAllow).Flags, 0)
	atomic.StoreUint32(&o.node.At(0).NextPod, 0)
	var swept []string
	g.do(func() (err error) {
		swept, err = g.e.Sweep(ctx)
		return err
	})
	if len(swept) != 3 {
		t.Errorf("swept %q", swept)
	}
	if o.slots.At(bpf.SlotDefaultDeny).OnMiss[0] != 0 || o.slots.At(bpf.SlotDefaultAllow).Flags == 0 || o.node.At(0).NextPod == 0 {
		t.Error("not mended")
	}
	if atomic.LoadUint32(&o.slots.At(bpf.SlotDefaultDeny).Generation) == generation {
		t.Error("flows that a default slot admitted while it was changed are not judged again")
	}
	g.do(func() (err error) {
		swept, err = g.e.Sweep(ctx)
		return err
	})
	if len(swept) != 0 {
		t.Errorf("swept again %q", swept)
	}
}

// Reading back costs no more than its share of the time.
func TestDeepBudget(t *testing.T) {
	var b deepBudget
	now := time.Now()
	b.since, b.spent = now, 3*time.Second
	if b.allow(now) {
		t.Error("allowed with the budget used up")
	}
	if b.allow(now.Add(30 * time.Second)) {
		t.Error("allowed after half of the time that it takes")
	}
	if !b.allow(now.Add(41 * time.Second)) {
		t.Error("not allowed when enough time has passed")
	}
}
