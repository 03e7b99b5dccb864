package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

var ctx = context.Background()

// ground is a node with one veth, whose pod is shop/p.
type ground struct {
	*Reconciler
	t    *testing.T
	node *testenv.NetNS
	att  state.Attachment
}

func newGround(t *testing.T) *ground {
	t.Helper()
	testenv.RequireRoot(t)
	g := &ground{t: t, node: testenv.New(t)}
	host, _ := testenv.Veth(t, g.node, "lt0", testenv.New(t), "eth0")
	g.att = state.Attachment{ContainerID: "c1", IfName: "eth0", PodNamespace: "shop", PodName: "p", Interfaces: []state.Interface{{
		Ifindex: host.Attrs().Index, Name: "lt0", Addr4: netip.MustParseAddr("10.0.0.2"),
	}}}
	e, err := enforce.Open(ctx, enforce.Config{
		Bpffs: testenv.BPFFS(t), StateDir: testenv.StateDir(t), AttachMode: attach.ModeClsact, LockTimeout: 5 * time.Second,
		Sizes: bpf.Sizes{Flows4: 64, Flows6: 64, Frags: 64},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	w := world.New(world.Options{PodsComplete: true, NodeName: "n"})
	w.Synced()
	g.Reconciler = New(w, e, slog.New(slog.DiscardHandler))
	return g
}

// label gives the pod a label and returns its identifier.
func (g *ground) label(app, uid string) identity.Identifier {
	labels := map[string]string{"app": app}
	g.world.Upsert(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: types.UID(uid), Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "n"},
	})
	return identity.Of("shop", labels)
}

func (g *ground) run(ids ...identity.Identifier) {
	g.t.Helper()
	for _, id := range ids {
		if err := g.node.Do(func() error { return g.reconcile(ctx, id) }); err != nil {
			g.t.Fatal(err)
		}
	}
}

// bind does what the plugin does, and returns with the locks still held.
func (g *ground) bind(req enforce.Request, ids ...identity.Identifier) *lock.Held {
	g.t.Helper()
	held, err := g.enforcer.Lock(ctx, ids...)
	if err != nil {
		g.t.Fatal(err)
	}
	req.Bind = []state.Attachment{g.att}
	if err := g.node.Do(func() error { _, err := g.enforcer.Apply(ctx, held, req); return err }); err != nil {
		g.t.Fatal(err)
	}
	return held
}

func (g *ground) release(held *lock.Held) {
	g.t.Helper()
	if err := held.Release(); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) wantBound(what string, id identity.Identifier) {
	g.t.Helper()
	a, err := g.store.ReadAttachment("c1", "eth0")
	if err != nil || a.Identifier != id || a.Default != "" {
		g.t.Errorf("%s: bound to %s, default %q, %v; want identifier %s", what, a.Identifier, a.Default, err, id)
	}
	rec, err := g.store.ReadPod("shop", "p")
	if err != nil || rec.Identifier != id {
		g.t.Errorf("%s: published as %s, %v; want %s", what, rec.Identifier, err, id)
	}
}

// What was bound to a default slot, since its identifier was not prepared or the record was of an earlier
// pod of the name, is taken over although the pod is published already.
func TestDefaultBoundPodIsTakenOver(t *testing.T) {
	for _, tt := range []struct{ name, uid, bound string }{
		{"same pod", "u1", "u1"},
		{"successor of the published pod", "u2", "u2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGround(t)
			id := g.label("a", "u1")
			g.run(id)
			name := identity.OfName("shop", "p")
			g.att.PodUID = tt.bound
			g.release(g.bind(enforce.Request{Identifier: name, Default: state.DefaultDeny}, name))
			g.label("a", tt.uid)
			g.run(id)
			g.wantBound("reconciled", id)
		})
	}
}

// Without Pod manifests a pod goes by its name before it is known and after: what was bound to a default slot
// has its identifier already, and is taken over as well.
func TestDefaultBoundPodIsTakenOverWhenListed(t *testing.T) {
	for _, verdict := range []string{state.DefaultAllow, state.DefaultDeny} {
		t.Run(verdict, func(t *testing.T) {
			g := newGround(t)
			w := world.New(world.Options{NodeName: "n"})
			w.Synced()
			g.Reconciler = New(w, g.enforcer, slog.New(slog.DiscardHandler))
			name := identity.OfName("shop", "p")
			g.release(g.bind(enforce.Request{Identifier: name, Default: verdict}, name))

			pe := &v1alpha1.PolicyEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pol-1"}}
			pe.Spec.PolicyRef.Namespace, pe.Spec.PolicyRef.Name = "shop", "pol"
			pe.Spec.PodIsolation = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			pe.Spec.PodSelectorEndpoints = []v1alpha1.PodEndpoint{{Namespace: "shop", Name: "p", PodIP: "10.0.0.2"}}
			w.Upsert(pe)
			g.run(name)
			g.wantBound("listed", name)
			a, err := g.store.ReadAttachment("c1", "eth0")
			rec, recErr := g.store.ReadIdentifier(name)
			if err := errors.Join(err, recErr); err != nil || a.Slot != rec.Running.Slot {
				t.Errorf("bound to slot %d, the rules are in %d, %v", a.Slot, rec.Running.Slot, err)
			}
			if err := g.node.Do(func() error { return g.enforcer.Check(ctx, "c1", "eth0") }); err != nil {
				t.Error(err)
			}
		})
	}
}

// A run that waited for its lock while the pod's labels changed must not bring the old state back.
func TestStateIsTheOneUnderTheLock(t *testing.T) {
	g := newGround(t)
	a := g.label("a", "u1")
	g.run(a)
	g.release(g.bind(enforce.Request{Identifier: a}, a))
	g.run(a)

	b := identity.Of("shop", map[string]string{"app": "b"})
	rules := policy.Compile(policy.Input{Default: [2]policy.Verdict{policy.Allow, policy.Allow}})
	held := g.bind(enforce.Request{Identifier: a}, a, b, identity.OfName("shop", "p"))
	done := make(chan error, 1)
	go func() {
		done <- g.node.Do(func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = errors.New("panic")
					t.Errorf("reconcile of the old identifier: %v", r)
				}
			}()
			return g.reconcile(ctx, a)
		})
	}()
	time.Sleep(100 * time.Millisecond) // it waits for the lock by now

	// Another worker is first to get the lock, with the new labels.
	g.label("b", "u1")
	desired, _ := g.world.Desired(b)
	if err := g.node.Do(func() error {
		_, err := g.enforcer.Apply(ctx, held, enforce.Request{Identifier: b, Namespace: "shop", Create: rules, Bind: []state.Attachment{g.att}})
		return errors.Join(err, g.publish(desired))
	}); err != nil {
		t.Fatal(err)
	}
	g.release(held)
	if err := <-done; err != nil {
		t.Error(err)
	}
	g.wantBound("after the late run", b)
}

// A pod whose object goes, and comes back with other labels, takes what runs of it along: the rules of its
// old labels are not its own any more.
func TestPodThatComesBackMoves(t *testing.T) {
	for _, tt := range []struct {
		name, uid string
		between   func(*ground)
	}{
		{"at once", "u1", nil},
		{"without uid", "", nil},
		{"after a restart", "u1", func(g *ground) { g.restart() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGround(t)
			a := g.label("a", tt.uid)
			g.run(a)
			g.att.PodUID = tt.uid
			g.release(g.bind(enforce.Request{Identifier: a}, a))
			g.run(a)

			g.world.Delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}})
			g.run(a)
			if _, err := g.store.ReadPod("shop", "p"); err == nil {
				t.Error("the record of a pod that is gone is there")
			}
			if tt.between != nil {
				tt.between(g)
			}
			b := g.label("b", tt.uid)
			g.run(b)
			g.wantBound("back with other labels", b)
		})
	}
}

// What an older latchd missed is mended: the pod is published elsewhere than what runs of it is bound.
func TestAuditFindsWhatIsBoundElsewhere(t *testing.T) {
	g := newGround(t)
	a := g.label("a", "u1")
	g.run(a)
	g.att.PodUID = "u1"
	g.release(g.bind(enforce.Request{Identifier: a}, a))
	b := identity.Of("shop", map[string]string{"app": "b"})
	g.setPublished("shop", "p", publication{b, "u1"})
	g.label("b", "u1")
	if err := g.node.Do(func() error { return g.AuditOnce(ctx) }); err != nil {
		t.Fatal(err)
	}
	g.run(b)
	g.wantBound("after the audit", b)
}

// restart forgets what this process knows but for some objects, and takes over what is there.
func (g *ground) restart(objects ...apis.Object) {
	g.t.Helper()
	w := world.New(world.Options{PodsComplete: true, NodeName: "n"})
	w.Upsert(objects...)
	w.Synced()
	g.Reconciler = New(w, g.enforcer, slog.New(slog.DiscardHandler))
	if _, err := g.Adopt(); err != nil {
		g.t.Fatal(err)
	}
}
