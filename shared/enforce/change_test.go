package enforce

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// allowPeers isolates egress and allows openPort to anywhere, and all ports to some. Such rules are changed
// to others of the kind in place.
func allowPeers(peers ...string) *policy.Rules {
	in := policy.Input{
		Default: [2]policy.Verdict{policy.Allow, policy.Allow},
		Policies: []policy.Policy{{
			Ref:      policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "shop", Name: "p"},
			Isolates: [2]bool{policy.Egress: true},
			Rules: [2][]policy.Rule{policy.Egress: {{
				Peer: policy.Peer{Block: netip.MustParsePrefix("0.0.0.0/0")}, Ports: []policy.Ports{{Protocol: policy.UDP, First: openPort, Last: openPort}},
			}}},
		}},
	}
	for _, p := range peers {
		rule := policy.Rule{Peer: policy.Peer{Block: netip.MustParsePrefix(p)}, AllPorts: true}
		in.Policies[0].Rules[policy.Egress] = append(in.Policies[0].Rules[policy.Egress], rule)
	}
	return policy.Compile(in)
}

// takeSlots leaves no slot free until the test ends, and returns how to give them back.
func (g *ground) takeSlots() (giveBack func()) {
	var taken []*bpf.Slot
	for i := bpf.FirstSlot; i < bpf.MaxSlots; i++ {
		if s := g.e.objects.slots.At(i); atomic.CompareAndSwapUint32(&s.Flags, 0, bpf.SlotUsed) {
			taken = append(taken, s)
		}
	}
	return func() {
		for _, s := range taken {
			atomic.StoreUint32(&s.Flags, 0)
		}
	}
}

func (g *ground) slotNow(i uint32) bpf.Slot { return *g.e.objects.slots.At(int(i)) }

// wantFailure applies what cannot be done.
func (g *ground) wantFailure(req Request, want error) {
	g.t.Helper()
	g.do(func() error {
		if _, err := g.tryApply(req); err == nil || want != nil && !errors.Is(err, want) {
			g.t.Errorf("got %v, want %v", err, want)
		}
		return nil
	})
}

// The rules for new pods need a slot, and there is none: those of running pods, which could be changed in
// place, stay as they are, too.
func TestNoSlotForNewPodsLeavesAllAsItWas(t *testing.T) {
	g := newGround(t)
	first := g.apply(Request{Identifier: idA, Create: allowPeers(nodeAddr + "/32"), Bind: []state.Attachment{attachment(g.iface)}})
	before := g.slotNow(first.Create.Slot)
	giveBack := g.takeSlots()
	req := Request{Identifier: idA, Create: allowPeers("198.19.0.1/32"), Running: allowPeers()}
	for range 2 {
		g.wantFailure(req, ErrNoSlot)
		if after := g.slotNow(first.Create.Slot); after != before {
			t.Errorf("slot was %+v, is %+v", before, after)
		}
	}
	g.wantVerdicts("no slot", true, true)
	g.apply(Request{Identifier: idA, Bind: []state.Attachment{attachment(g.iface)}}) // ADD goes on
	giveBack()
	g.apply(req)
	g.wantVerdicts("slots again", true, false)
}

// A writer has ended in the middle of an update, and the next one has no slot for new pods: the update of
// what runs is ended all the same, and live flows that it denies are cut.
func TestNoSlotEndsAnUpdateThatWasBegun(t *testing.T) {
	g := newGround(t)
	if err := g.e.SetNode(ctx, NodeConfig{Timeouts: shortGrace()}); err != nil {
		t.Fatal(err)
	}
	first := g.apply(Request{Identifier: idA, Create: allowPeers(nodeAddr + "/32"), Bind: []state.Attachment{attachment(g.iface)}})
	const local = 9999
	g.sendFrom(local, shutPort)
	g.e.objects.setSlotHash(first.Create.Slot, [32]byte{})
	giveBack := g.takeSlots()
	g.wantFailure(Request{Identifier: idA, Create: allowPeers("198.19.0.1/32"), Running: allowPeers()}, ErrNoSlot)
	giveBack()
	after := g.slotNow(first.Create.Slot)
	if after.RulesHash != allowPeers().Hash() || after.Generation == first.Create.Generation {
		t.Errorf("the update was not ended: %+v", after)
	}
	time.Sleep(3 * time.Second) // the grace of shortGrace, and the clock's step
	before := g.received[shutPort].Load()
	for range 20 {
		g.sendFrom(local, shutPort)
		time.Sleep(5 * time.Millisecond)
	}
	if got := g.received[shutPort].Load() - before; got > 0 {
		t.Errorf("%d datagrams of a flow that policy denies arrived", got)
	}
	g.wantVerdicts("ended", true, false)
}

// Both slots are changed in place, and the second write fails: the first is whole, the second as it was.
// What fails after a spare slot was filled gives it back.
func TestFailureInPlace(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPeers(nodeAddr + "/32"), Bind: []state.Attachment{attachment(g.iface)}})
	two := g.apply(Request{Identifier: idA, Create: allowPeers("198.19.0.1/32"), Running: allowPeers(nodeAddr + "/32")})
	create, running := g.slotNow(two.Create.Slot), g.slotNow(two.Running.Slot)
	used := g.usedSlots()
	g.freeze(two.Create.Slot)
	req := Request{Identifier: idA, Create: allowPeers("198.19.0.2/32"), Running: allowPeers()}
	for range 2 {
		g.wantFailure(req, nil)
		if now := g.slotNow(two.Running.Slot); now.RulesHash != req.Running.Hash() || now.Generation == running.Generation {
			t.Errorf("what runs: %+v", now)
		}
		if now := g.slotNow(two.Create.Slot); now.RulesHash != create.RulesHash {
			t.Errorf("what is created: %+v, was %+v", now, create)
		}
	}
	g.wantVerdicts("half done", true, false)
	g.wantFailure(Request{Identifier: idA, Create: req.Create, Running: manyPeers(3000)}, nil)
	if now := g.usedSlots(); now != used {
		t.Errorf("%d slots are in use, %d were", now, used)
	}
	g.wantVerdicts("spare slot given back", true, false)
}

func (g *ground) usedSlots() (n int) {
	for i := bpf.FirstSlot; i < bpf.MaxSlots; i++ {
		if g.slotNow(uint32(i)).Flags != 0 {
			n++
		}
	}
	return n
}
