package enforce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

var ctx = context.Background()

// Apply, verify, apply again with the same effect, remove, remove again, apply: in both modes.
func TestLadder(t *testing.T) {
	for _, mode := range []attach.Mode{attach.ModeClsact, attach.ModeTCX, attach.ModeAuto} {
		t.Run(string(mode), func(t *testing.T) {
			if mode == attach.ModeTCX {
				testenv.RequireKernel(t, testenv.TCXVersion, attach.HaveTCX())
			}
			g := newGround(t)
			g.e.cfg.AttachMode = mode
			g.wantVerdicts("before anything", true, true)
			for round := range 2 {
				r := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
				g.wantVerdicts("applied", true, false)
				again := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}, Verify: true})
				if again.Changed || again.Create.Slot != r.Create.Slot || again.Create.Generation != r.Create.Generation || len(again.Repaired) > 0 {
					t.Errorf("round %d: applying the same changed something: %+v", round, again)
				}
				g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
				g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
				g.wantVerdicts("removed, interface still there", false, false)
				g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
				if err := g.e.Check(ctx, "c1", "eth0"); !errors.Is(err, ErrUnknown) {
					t.Errorf("check after remove: %v", err)
				}
				g.forget(idA)
				g.wantNothingLeft()
			}
		})
	}
}

func (g *ground) forget(id identity.Identifier) {
	g.t.Helper()
	held, err := g.e.Lock(ctx, id)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := errors.Join(g.e.Forget(ctx, held, id), held.ReleaseAndRemove()); err != nil {
		g.t.Fatal(err)
	}
}

func TestDetachLeavesTheInterfaceOpenAndClean(t *testing.T) {
	for _, mode := range []attach.Mode{attach.ModeClsact, attach.ModeTCX} {
		if mode == attach.ModeTCX {
			testenv.RequireKernel(t, testenv.TCXVersion, attach.HaveTCX())
		}
		g := newGround(t)
		g.e.cfg.AttachMode = mode
		g.apply(Request{Identifier: idA, Create: allowPorts(), Bind: []state.Attachment{attachment(g.iface)}})
		g.wantVerdicts("applied", false, false)
		g.do(func() error { return g.e.Detach(ctx, "c1", "") })
		g.wantVerdicts("detached", true, true)
		g.do(func() error {
			for _, side := range attach.Sides {
				if s, err := attach.Query(g.iface.Ifindex, side, 0); err != nil || s.ProgID != 0 || len(s.Ahead) > 0 {
					return fmt.Errorf("%s is left: %+v, %v", side, s, err)
				}
			}
			return nil
		})
	}
}

func TestPolicyChangesInPlaceAndInAnotherSlot(t *testing.T) {
	g := newGround(t)
	first := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	second := g.apply(Request{Identifier: idA, Create: allowPeers(nodeAddr + "/32")})
	if second.Create.Slot != first.Create.Slot || second.Create.Generation == first.Create.Generation {
		t.Errorf("a small change: slot %d generation %d, then slot %d generation %d; want the same slot and a new generation",
			first.Create.Slot, first.Create.Generation, second.Create.Slot, second.Create.Generation)
	}
	g.wantVerdicts("changed in place", true, true)
	third := g.apply(Request{Identifier: idA, Create: manyPeers(5000)})
	if third.Create.Slot == second.Create.Slot {
		t.Error("a large change was made in place")
	}
	g.wantVerdicts("changed to rules for others", false, false)
	g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
	if f := g.e.objects.slots.At(int(second.Create.Slot)).Flags; f != 0 {
		t.Errorf("slot %d was left and is not free: flags %#x", second.Create.Slot, f)
	}
	many := manyPeers(5000)
	many.Entries[policy.Egress][17].Ports = allowPorts(shutPort).Entries[policy.Egress][0].Ports
	if fourth := g.apply(Request{Identifier: idA, Create: many}); fourth.Create.Slot == third.Create.Slot {
		t.Error("the ports of a peer were changed in place")
	}
	g.apply(Request{Identifier: idA, Create: openRules()})
	g.wantVerdicts("opened", true, true)
}

func manyPeers(n int) *policy.Rules {
	var rules []policy.Rule
	for i := range n {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		rules = append(rules, policy.Rule{Peer: policy.Peer{Block: p}, AllPorts: true})
	}
	return policy.Compile(policy.Input{Policies: []policy.Policy{{
		Ref: policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "shop", Name: "many"}, Isolates: [2]bool{true, true},
		Rules: [2][]policy.Rule{policy.Egress: rules},
	}}})
}

// While a policy settles, running pods keep what they have and new pods get everything.
func TestCreateAndRunningPart(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: openRules(), Bind: []state.Attachment{attachment(g.iface)}})
	r := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Running: openRules()})
	if r.Create.Slot == r.Running.Slot {
		t.Fatal("create and running share a slot though they differ")
	}
	g.wantVerdicts("running pod", true, true)

	other := attachment(state.Interface{Ifindex: g.iface.Ifindex, Name: g.iface.Name})
	other.ContainerID = "c2" // the same interface again, as a pod being created
	g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
	g.apply(Request{Identifier: idA, Bind: []state.Attachment{other}})
	g.wantVerdicts("new pod", true, false)

	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Running: openRules(), Verify: true})
	g.wantVerdicts("new pod, applied again", true, false)
	r = g.apply(Request{Identifier: idA, Create: allowPorts(openPort)})
	if r.Create.Slot != r.Running.Slot {
		t.Error("create and running are one again and have two slots")
	}
	g.wantVerdicts("settled", true, false)
	g.do(func() error { return g.e.Check(ctx, "c2", "eth0") })
}

func TestHoldRunningKeepsWhatRuns(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	for range 2 {
		r := g.apply(Request{Identifier: idA, Create: allowPorts(shutPort), HoldRunning: true, Verify: true})
		if r.Create.Slot == r.Running.Slot {
			t.Error("what runs was not left alone")
		}
		g.wantVerdicts("held", true, false)
	}
	r := g.apply(Request{Identifier: idA, Create: allowPorts(shutPort)})
	if r.Create.Slot != r.Running.Slot {
		t.Error("not held any more, and still two slots")
	}
	g.wantVerdicts("not held any more", false, true)
}

func TestMoveToAnotherIdentifierAndFromDefault(t *testing.T) {
	g := newGround(t)
	byName := identity.OfName("shop", "a")
	g.do(func() error {
		held, err := g.e.Lock(ctx, byName)
		if err != nil {
			return err
		}
		_, err = g.e.Apply(ctx, held, Request{Identifier: byName, Default: "deny", Bind: []state.Attachment{attachment(g.iface)}})
		return errors.Join(err, held.Release())
	})
	g.wantVerdicts("default deny", false, false)
	g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })

	move := func(id identity.Identifier, rules *policy.Rules) {
		t.Helper()
		att, err := g.e.Store().ReadAttachment("c1", "eth0")
		if err != nil {
			t.Fatal(err)
		}
		g.do(func() error {
			held, err := g.e.Lock(ctx, id, att.Identifier)
			if err != nil {
				return err
			}
			_, err = g.e.Apply(ctx, held, Request{Identifier: id, Create: rules, Bind: []state.Attachment{att}})
			return errors.Join(err, held.Release())
		})
	}
	move(idA, allowPorts(openPort))
	g.wantVerdicts("under a", true, false)
	move(idB, allowPorts(shutPort))
	g.wantVerdicts("under b", false, true)
	if m, err := g.e.Store().Members(idA); err != nil || len(m) != 0 {
		t.Errorf("a still has members %v, %v", m, err)
	}
	g.forget(idA)
	g.forget(byName)
	g.do(func() error { return g.e.Remove(ctx, "c1", "") })
	g.forget(idB)
	g.wantNothingLeft()
}

func TestNotPreparedIsRefused(t *testing.T) {
	g := newGround(t)
	g.do(func() error {
		_, err := g.tryApply(Request{Identifier: idA, Bind: []state.Attachment{attachment(g.iface)}})
		if !errors.Is(err, ErrNotPrepared) {
			return fmt.Errorf("got %v, want ErrNotPrepared", err)
		}
		return nil
	})
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort)})
	slot := g.apply(Request{Identifier: idA, Create: allowPorts(openPort)}).Create.Slot
	g.e.objects.setSlotHash(slot, [32]byte{}) // in the middle of an update
	g.do(func() error {
		if _, err := g.tryApply(Request{Identifier: idA, Bind: []state.Attachment{attachment(g.iface)}}); !errors.Is(err, ErrNotPrepared) {
			return fmt.Errorf("slot in the middle of an update: got %v, want ErrNotPrepared", err)
		}
		return nil
	})
	g.wantVerdicts("refused, never attached", true, true)
}

// A second process' objects in place of ours, or pins that are gone, are noticed by the next use.
func TestPinsThatChangeUnderUs(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	if err := g.e.pins.RemoveAll(); err != nil {
		t.Fatal(err)
	}
	g.apply(Request{Identifier: idA, Create: allowPorts(shutPort)})
	g.wantVerdicts("pins put back", false, true)
	if missing, changed := g.e.objects.compare(g.e.pins); len(missing) > 0 || changed {
		t.Errorf("pins are not back: missing %v, changed %v", missing, changed)
	}

	_ = g.e.Close()
	if err := g.e.pins.RemoveAll(); err != nil {
		t.Fatal(err)
	}
	g.open() // as after a restart with an empty bpffs: the interface runs programs that nobody manages
	g.wantVerdicts("orphaned programs", false, true)
	r := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true})
	if len(r.Repaired) == 0 {
		t.Error("programs that are not the pinned ones were not reported")
	}
	g.wantVerdicts("adopted", true, false)
}

func TestSlotsDoNotLeak(t *testing.T) {
	g := newGround(t)
	for i := range 40 {
		rules := allowPorts(openPort)
		if i%2 == 0 {
			rules = manyPeers(3000 + i)
		}
		g.apply(Request{Identifier: idA, Create: rules, Bind: []state.Attachment{attachment(g.iface)}})
	}
	used := 0
	for slot := bpf.FirstSlot; slot < bpf.MaxSlots; slot++ {
		if g.e.objects.slots.At(slot).Flags != 0 {
			used++
		}
	}
	if used != 1 {
		t.Errorf("%d slots are in use by one identifier", used)
	}
}

// Rules that were written and taken back may have admitted flows in between: these are judged again.
func TestTakenBackRulesLeaveNoFlow(t *testing.T) {
	g := newGround(t)
	req := Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}}
	slot := g.apply(req).Create.Slot
	before := *g.e.objects.slots.At(int(slot))
	g.freeze(slot)
	req.Create = allowPeers(nodeAddr + "/32")
	g.do(func() error {
		if _, err := g.tryApply(req); err == nil {
			t.Error("the rules of a frozen map were changed")
		}
		return nil
	})
	after := *g.e.objects.slots.At(int(slot))
	if after.RulesHash != before.RulesHash {
		t.Error("the old rules are not in force")
	}
	if after.Generation == before.Generation {
		t.Error("flows are not judged again")
	}
}

// freeze lets no write through any more to the map of a slot's IPv4 egress rules.
func (g *ground) freeze(slot uint32) {
	g.t.Helper()
	var inner *ebpf.Map
	if err := g.e.objects.maps["rules_out4"].Lookup(slot, &inner); err != nil {
		g.t.Fatal(err)
	}
	defer inner.Close()
	if err := inner.Freeze(); err != nil {
		g.t.Fatal(err)
	}
}
