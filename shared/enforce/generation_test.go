package enforce

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// Numbers that are in force are passed over, when the counter is around and when it was lost; 0 is none.
func TestGenerationsInForceArePassedOver(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	b := g.apply(Request{Identifier: idB, Create: openRules()})
	other, next := &g.e.objects.slots.At(int(b.Create.Slot)).Generation, &g.e.objects.node.At(0).NextGeneration
	for i, c := range []struct{ last, inForce, want uint32 }{
		{last: 41, inForce: 42, want: 43},
		{last: 0xfffffffe, inForce: 0xffffffff, want: 3}, // 0, and those of the default slots
		{last: 0, inForce: 3, want: 4},
	} {
		atomic.StoreUint32(next, c.last)
		atomic.StoreUint32(other, c.inForce)
		rules := []*policy.Rules{allowPeers(nodeAddr + "/32"), allowPorts(openPort)}[i&1]
		if a := g.apply(Request{Identifier: idA, Create: rules}); a.Create.Generation != c.want {
			t.Errorf("generation %d after %d, want %d", a.Create.Generation, c.last, c.want)
		}
	}
	if shared := g.e.objects.tellApart(); len(shared) > 0 {
		t.Errorf("slots %v share a generation", shared)
	}
}

// Slots that share a generation, as the default ones of an older build do, are told apart when a watcher
// starts and by the sweep: a flow that one admitted is cut once its pod is bound to the other.
func TestSharedGenerationsAreToldApart(t *testing.T) {
	for name, heal := range map[string]func(*ground) error{
		"start": func(g *ground) error { return g.e.SetNode(ctx, NodeConfig{Timeouts: shortGrace()}) },
		"sweep": func(g *ground) error {
			swept, err := g.e.Sweep(ctx)
			if err == nil && len(swept) != 2 {
				err = fmt.Errorf("swept %q", swept)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			if err := g.e.SetNode(ctx, NodeConfig{Timeouts: shortGrace()}); err != nil {
				t.Fatal(err)
			}
			bind := func(to string) {
				g.apply(Request{Identifier: idA, Default: to, Bind: []state.Attachment{attachment(g.iface)}})
			}
			for _, slot := range []int{bpf.SlotDefaultAllow, bpf.SlotDefaultDeny} {
				atomic.StoreUint32(&g.e.objects.slots.At(slot).Generation, 1)
			}
			const local = 9999
			bind("allow")
			g.sendFrom(local, openPort)
			bind("deny")
			time.Sleep(2 * time.Second) // any grace is over
			if !g.arrives(local) {
				t.Fatal("control: the flow is cut without being judged again")
			}
			g.do(func() error { return heal(g) })
			testenv.Eventually(t, 5*time.Second, func() error {
				if g.arrives(local) {
					return errors.New("a flow that the default allow admitted passes under the default deny")
				}
				return nil
			})
			bind("allow")
			testenv.Eventually(t, 5*time.Second, func() error {
				if !g.arrives(local) {
					return errors.New("control: the flow does not pass under the default allow")
				}
				return nil
			})
		})
	}
}

func shortGrace() bpf.Timeouts {
	t := bpf.DefaultTimeouts()
	t.Grace = time.Millisecond
	return t
}

// arrives tells whether a datagram of the flow from a port of the pod arrives.
func (g *ground) arrives(local int) bool {
	g.t.Helper()
	before := g.received[openPort].Load()
	g.sendFrom(local, openPort)
	for range 20 {
		if g.received[openPort].Load() > before {
			return true
		}
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

// All flows are judged again when an address is the node's no longer, or another switch says what the
// node is; not when nothing changes or an address comes.
func TestNodeChangesRenewGenerations(t *testing.T) {
	g := newGround(t)
	a := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	first, second := netip.MustParseAddr("198.18.9.1"), netip.MustParseAddr("198.18.9.2")
	for _, step := range []struct {
		what   string
		config NodeConfig
		renews bool
	}{
		{"two addresses", NodeConfig{Addrs: []netip.Addr{first, second}}, false},
		{"the same again", NodeConfig{Addrs: []netip.Addr{second, first}}, false},
		{"one gone", NodeConfig{Addrs: []netip.Addr{first}}, true},
		{"not known", NodeConfig{KeepAddrs: true}, false},
		{"events", NodeConfig{KeepAddrs: true, EventsDeny: true}, false},
		{"judged", NodeConfig{KeepAddrs: true, EventsDeny: true, JudgeToNode: true}, true},
		{"by address", NodeConfig{KeepAddrs: true, AddressIsNode: true, JudgeToNode: true}, true},
		{"still", NodeConfig{KeepAddrs: true, AddressIsNode: true, JudgeToNode: true}, false},
		{"neither", NodeConfig{KeepAddrs: true}, true},
	} {
		slots := []uint32{bpf.SlotDefaultAllow, bpf.SlotDefaultDeny, a.Create.Slot}
		before := g.generations(slots)
		step.config.Timeouts = bpf.DefaultTimeouts()
		if err := g.e.SetNode(ctx, step.config); err != nil {
			t.Fatal(err)
		}
		for i, now := range g.generations(slots) {
			if renewed := now != before[i]; renewed != step.renews {
				t.Errorf("%s: slot %d renewed %v, want %v", step.what, slots[i], renewed, step.renews)
			}
		}
	}
}

func (g *ground) generations(slots []uint32) (all []uint32) {
	for _, slot := range slots {
		all = append(all, atomic.LoadUint32(&g.e.objects.slots.At(int(slot)).Generation))
	}
	if sorted := slices.Sorted(slices.Values(all)); len(slices.Compact(sorted)) != len(all) {
		g.t.Errorf("generations %v are not distinct", all)
	}
	return all
}
