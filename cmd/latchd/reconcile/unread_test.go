package reconcile

import (
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/enforce"
)

// A watcher that starts while a manifest is broken must not take its policies for deleted.
func TestPolicyThatCannotBeReadStaysInForce(t *testing.T) {
	g := newGround(t)
	id := g.label("a", "u1")
	closed := &v1alpha1.PolicyEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x-1"}}
	closed.Spec.PolicyRef = v1alpha1.PolicyReference{Namespace: "shop", Name: "x"}
	closed.Spec.PodSelector = &metav1.LabelSelector{}
	closed.Spec.PodIsolation = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	g.world.Upsert(closed)
	g.run(id)
	g.release(g.bind(enforce.Request{Identifier: id}, id))
	g.run(id)
	hash := func() string {
		rec, err := g.store.ReadIdentifier(id)
		if err != nil {
			t.Fatal(err)
		}
		return rec.Running.Hash
	}
	before := hash()

	w := world.New(world.Options{PodsComplete: true, NodeName: "n"})
	g.Reconciler = New(w, g.enforcer, slog.New(slog.DiscardHandler))
	g.label("a", "u1")
	g.SetUnread(true)
	w.Synced()
	if _, err := g.Adopt(); err != nil {
		t.Fatal(err)
	}
	if err := g.node.Do(func() error { return g.reconcile(ctx, id) }); err == nil {
		t.Error("nothing was said about the policy that is missing")
	}
	if hash() != before {
		t.Error("the policy was taken for deleted")
	}
	g.SetUnread(false) // the file can be read, or is gone
	g.run(id)
	if hash() == before {
		t.Error("the policy is gone and still in force")
	}
}
