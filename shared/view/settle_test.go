package view_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/view"
)

// Attachments that are out of order are waited for together: one after the other, 200 would take two minutes.
// One that is removed meanwhile is none.
func TestManyPodsOutOfOrder(t *testing.T) {
	const gone = 200
	g := newGround(t)
	store := state.New(g.cfg.StateDir)
	for i := range gone {
		a := state.Attachment{ContainerID: fmt.Sprint("gone", i), IfName: "eth0", PodNamespace: "t1", PodName: fmt.Sprint("gone", i), Identifier: idB,
			Phase: state.PhaseEnforced, Interfaces: []state.Interface{{Ifindex: 1<<20 + i, Name: "none", PodID: 1<<20 + uint32(i)}}}
		if err := store.WriteAttachment(a); err != nil {
			t.Fatal(err)
		}
	}
	removed := make(chan error, 1)
	go func() {
		time.Sleep(50 * time.Millisecond)
		removed <- store.DeleteAttachment("gone0", "eth0")
	}()
	began := time.Now()
	g.look(func(n *view.Node) error {
		pods, err := n.Pods()
		wrong := 0
		for _, p := range pods {
			if !p.Healthy {
				wrong++
			}
			if p.ContainerID == "gone0" {
				t.Errorf("a removed attachment is reported: %v", p.Problems)
			}
		}
		if wrong != gone-1 {
			t.Errorf("%d of %d are out of order", wrong, gone-1)
		}
		return err
	})
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
}
