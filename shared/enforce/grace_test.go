package enforce

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// A wait is shared by all whose memory was freed before it began, and by nobody else.
func TestWaitsAreShared(t *testing.T) {
	waits := 0
	g := grace{wait: func() { waits++ }}
	freed := time.Now()
	for range 3 {
		g.after(freed)
	}
	if waits != 1 {
		t.Errorf("waited %d times for the same", waits)
	}
	g.after(time.Now())
	if waits != 2 {
		t.Errorf("waited %d times, want once more for what was freed since", waits)
	}

	// Freed while another waits: that wait may have begun too early.
	begun, end := make(chan struct{}), make(chan struct{})
	waits = 0
	g.wait = func() {
		if waits++; waits == 1 {
			close(begun)
			<-end
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { g.after(time.Now()) })
	<-begun
	freed = time.Now()
	for range 3 {
		wg.Go(func() { g.after(freed) })
	}
	close(end)
	wg.Wait()
	if waits != 2 {
		t.Errorf("waited %d times, want one that began before and one for the three that came later", waits)
	}
}

// A small rule set is changed in place also when nothing of it stays: another slot costs many waits.
func TestSmallRulesChangeInPlace(t *testing.T) {
	g := newGround(t)
	peers := func(net byte) *policy.Rules {
		var rules []policy.Rule
		for i := range 200 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{11, net, 0, byte(i)}), 32)
			rules = append(rules, policy.Rule{Peer: policy.Peer{Block: p}, AllPorts: true})
		}
		return policy.Compile(policy.Input{Policies: []policy.Policy{{
			Ref: policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "shop", Name: "p"}, Isolates: [2]bool{true, true},
			Rules: [2][]policy.Rule{policy.Egress: rules},
		}}})
	}
	first := g.apply(Request{Identifier: idA, Create: peers(1), Bind: []state.Attachment{attachment(g.iface)}})
	waits := 0
	g.e.grace.wait = func() { waits++ }
	for net := range byte(4) {
		if r := g.apply(Request{Identifier: idA, Create: peers(2 + net)}); r.Create.Slot != first.Create.Slot {
			t.Fatalf("change %d was made in another slot", net)
		}
		if waits > int(net)+1 {
			t.Errorf("waited %d times for %d changes", waits, net+1)
		}
	}
}
