package reconcile

import (
	"log/slog"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/enforce"
)

// A running pod that waits for the rest of a new policy is recorded as such, and not any more when it has
// it.
func TestSettlingIsRecorded(t *testing.T) {
	g := newGround(t)
	now := time.Now()
	w := world.New(world.Options{PodsComplete: true, NodeName: "n", Now: func() time.Time { return now }})
	w.Synced()
	g.Reconciler = New(w, g.enforcer, slog.New(slog.DiscardHandler))
	id := g.label("a", "u1")
	g.run(id)
	g.release(g.bind(enforce.Request{Identifier: id}, id))
	g.run(id)
	closed := &v1alpha1.PolicyEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x-1"}}
	closed.Spec.PolicyRef = v1alpha1.PolicyReference{Namespace: "shop", Name: "x"}
	closed.Spec.PodSelector = &metav1.LabelSelector{}
	closed.Spec.PodIsolation = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	g.world.Upsert(closed)
	for _, step := range []struct {
		wait time.Duration
		want int
	}{{0, 1}, {time.Minute, 0}} {
		now = now.Add(step.wait)
		g.world.Due()
		g.run(id)
		rec, err := g.store.ReadIdentifier(id)
		if err != nil || len(rec.Settling) != step.want || (rec.Create.Slot == rec.Running.Slot) != (step.want == 0) {
			t.Errorf("after %v: %+v, %v, want %d settling", step.wait, rec, err, step.want)
		}
	}
}
