package view_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
	"github.com/latch-cni/latch/shared/view"
)

// The flow is seen from both ends; the packet that is denied makes none, and is counted.
func TestFlowsAndCounters(t *testing.T) {
	g := newGround(t)
	g.send(openPort)
	g.send(shutPort)
	a, b := g.pod(testenv.PodA), g.pod(testenv.PodB)
	testenv.Eventually(t, 2*time.Second, func() error {
		var err error
		g.look(func(n *view.Node) error {
			flows, readErr := n.Flows([]view.Pod{b})
			err = wantFlow(flows, "ingress", "t1/db")
			return readErr
		})
		return err
	})
	g.look(func(n *view.Node) error {
		flows, err := n.Flows([]view.Pod{a})
		if len(flows) != 2 || flows[0].Opened != "egress" || flows[0].Admitted.String() != "default of the mode" {
			t.Errorf("flows of pod A: %+v", flows)
		}
		all, errAll := n.Flows(nil)
		if len(all) != 3 {
			t.Errorf("all flows: %+v", all)
		}
		counters, lost, errCount := n.Counters([]view.Pod{b})
		got := map[string]uint64{}
		for _, c := range counters {
			got[fmt.Sprint(c.Direction, " ", c.Verdict, " ", c.Reason, " ", c.Pods)] = c.Packets
		}
		for _, verdict := range []string{"allow", "deny"} {
			if key := fmt.Sprint("ingress ", verdict, " policy ", []string{b.Key()}); got[key] != 1 {
				t.Errorf("counters of pod B: no %q in %v", key, got)
			}
		}
		if lost != 0 {
			t.Errorf("%d lost events", lost)
		}
		return errors.Join(err, errAll, errCount)
	})
	g.apply(idB, isolated(shutPort), g.b)
	b = g.pod(testenv.PodB) // other ports take another slot
	g.look(func(n *view.Node) error {
		flows, err := n.Flows([]view.Pod{b})
		if len(flows) != 1 || flows[0].Current {
			t.Errorf("flows after a change of policy: %+v", flows)
		}
		return err
	})
}

func wantFlow(flows []view.Flow, opened, by string) error {
	if len(flows) != 1 {
		return fmt.Errorf("%d flows, want 1: %+v", len(flows), flows)
	}
	f := flows[0]
	if f.Opened != opened || f.Admitted.String() != by || f.Protocol != "UDP" || f.LocalPort != openPort ||
		f.Remote.Addr().String() != testenv.PodA.Addr4 || !f.Current || f.State != "new" || f.Idle < 0 || f.Expires <= 0 {
		return fmt.Errorf("flow %+v", f)
	}
	return nil
}
