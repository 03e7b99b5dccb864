package source

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// TestOrphansAreAskedFor believes that a policy is gone when the API server does not have it, and says
// which it has that were not delivered.
func TestOrphansAreAskedFor(t *testing.T) {
	s, r := newServer(t, allCustom...), newRecorder()
	src := start(t, s, r, here...)
	eventually(t, "synced", r.isSynced)
	s.tell("MODIFIED", networkPolicyOf("t1", "silent"), false)
	silent := apis.Ref{Kind: apis.KindNetworkPolicy, Namespace: "t1", Name: "silent"}
	r.look(func() {
		r.orphans = []apis.Ref{silent, {Kind: apis.KindNetworkPolicy, Namespace: "t1", Name: "gone"},
			{Kind: apis.KindNetworkPolicy, Namespace: "t2", Name: "silent"}, {Kind: apis.KindClusterNetworkPolicy, Name: "gone"}}
	})
	var gone []string
	eventually(t, "an answer to all", func() bool {
		r.look(func() { gone = r.gone })
		return len(gone) == 3 && len(src.Status().Errors) > 0
	})
	if diff := cmp.Diff([]string{"ClusterNetworkPolicy gone", "NetworkPolicy t1/gone", "NetworkPolicy t2/silent"}, gone); diff != "" {
		t.Error(diff)
	}
	if st := src.Status(); st.Away.IsZero() || !strings.Contains(st.Errors[0], "NetworkPolicy t1/silent") {
		t.Errorf("status %+v", st)
	}
	r.look(func() { r.orphans = nil })
	eventually(t, "nothing is missing", func() bool { return len(src.Status().Errors) == 0 })
}

// TestOrphansWithoutAnswer believes nothing of a kind that cannot be asked for, be it that the API server
// has it no more.
func TestOrphansWithoutAnswer(t *testing.T) {
	s, r := newServer(t, allCustom...), newRecorder()
	src := start(t, s, r, here...)
	eventually(t, "synced", r.isSynced)
	s.mu.Lock()
	delete(s.served, "clusternetworkpolicies")
	s.mu.Unlock()
	r.look(func() {
		r.orphans = []apis.Ref{{Kind: apis.KindClusterNetworkPolicy, Name: "c"}, {Kind: apis.KindNetworkPolicy, Namespace: "t1", Name: "gone"}}
	})
	eventually(t, "an error", func() bool { return len(src.Status().Errors) > 0 })
	eventually(t, "an answer about another kind", func() bool {
		asked := false
		r.look(func() { asked = len(r.gone) > 0 })
		return asked
	})
	r.look(func() {
		if diff := cmp.Diff([]string{"NetworkPolicy t1/gone"}, r.gone); diff != "" {
			t.Error(diff)
		}
	})
}

// intoWorld is a sink that does what latchd does.
type intoWorld struct{ *world.World }

func (s intoWorld) Change(upserted, deleted []apis.Object) {
	s.Upsert(upserted...)
	s.Delete(deleted...)
}
func (s intoWorld) Synced(complete ...string)                             { s.World.Synced(complete...) }
func (s intoWorld) Gone(orphan apis.Ref, asked time.Time)                 { s.World.Gone(orphan, asked) }
func (s intoWorld) NodeAddrs(context.Context, []netip.Addr) (never error) { return nil }

// lagGround is a source that fills a World with pods t1/a and t1/b, which run.
type lagGround struct {
	*server
	w  *world.World
	id identity.Identifier
}

func newLagGround(t *testing.T) *lagGround {
	t.Helper()
	g := &lagGround{server: newServer(t, allCustom...), id: identity.Of("t1", map[string]string{"app": "a"})}
	g.w = world.New(world.Options{NodeName: "n1", NodeIPs: here, PodsComplete: true, Quiet: 10 * time.Millisecond, UnorderedGrace: 50 * time.Millisecond})
	g.put(namespaceOf("t1"))
	g.put(podOf("t1", "a", "u1", map[string]string{"app": "a"}))
	src, err := New(Options{Kubeconfig: g.kubeconfig(), QPS: 100, Burst: 100, Node: "n1", NodeAddrs: here, Log: slog.New(slog.DiscardHandler)}, intoWorld{g.w})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { src.Run(ctx) })
	wg.Go(func() { g.w.Run(ctx, func(...identity.Identifier) {}) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	eventually(t, "synced", g.w.HasSynced)
	eventually(t, "a pod", func() bool { _, ok := g.w.Desired(g.id); return ok })
	g.w.SetRunning(g.id, true)
	return g
}

// closed says whether the policy is in force for pods being created and running ones.
func (g *lagGround) closed() (create, running bool) {
	stranger := netip.MustParseAddr("203.0.113.9")
	denies := func(in policy.Input) bool {
		return policy.Compile(in).Lookup(policy.Ingress, stranger, policy.TCP, 80).Verdict == policy.Deny
	}
	d, _ := g.w.Desired(g.id)
	return denies(d.Create), denies(d.Running)
}

func (g *lagGround) isClosed() bool {
	create, running := g.closed()
	return create && running
}

// lagPolicies are policies that close pods with the label app=a, with their endpoints objects.
func lagPolicies() map[string][2]apis.Object {
	a := metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	ingress := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	np, anp := networkPolicyOf("t1", "p"), &v1alpha1.ApplicationNetworkPolicy{ObjectMeta: meta("t1", "p")}
	np.Spec.PodSelector, np.Spec.PolicyTypes = a, ingress
	anp.Spec.PodSelector, anp.Spec.PolicyTypes = a, ingress
	endpoints := func(owner string) *v1alpha1.PolicyEndpoint {
		o := endpointOf("t1", "p-x", v1alpha1.PodEndpoint{Namespace: "t1", Name: "a", PodIP: "10.1.0.5", HostIP: "10.0.0.10"})
		o.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "p"}}
		o.Spec.PolicyRef.Name, o.Spec.PodIsolation = "p", ingress
		return o
	}
	subject := v1alpha1.Subject{Namespaces: &metav1.LabelSelector{}}
	cnp := &v1alpha1.ClusterNetworkPolicy{ObjectMeta: meta("", "p")}
	cnp.Spec.Tier, cnp.Spec.Subject = v1alpha1.TierAdmin, subject
	cpe := &v1alpha1.ClusterPolicyEndpoint{ObjectMeta: meta("", "p-x")}
	cpe.Spec.PolicyRef.Name, cpe.Spec.Tier, cpe.Spec.Subject = "p", v1alpha1.TierAdmin, &subject
	cpe.Spec.Ingress = []v1alpha1.ClusterEndpointInfo{{CIDR: "0.0.0.0/0", Action: v1alpha1.ActionDeny}}
	return map[string][2]apis.Object{
		"networkpolicies":            {np, endpoints(apis.KindNetworkPolicy)},
		"applicationnetworkpolicies": {anp, endpoints(apis.KindApplicationNetworkPolicy)},
		"clusternetworkpolicies":     {cnp, cpe},
	}
}

// A policy whose own object is not seen, since its watch hangs or says nothing, is in force as long as it
// exists.
func TestPolicyThatIsNotSeenStaysInForce(t *testing.T) {
	for resource, objects := range lagPolicies() {
		for _, how := range []string{"created, watch hangs", "created, watch is silent", "created again, watch hangs"} {
			t.Run(resource+" "+how, func(t *testing.T) {
				t.Parallel()
				own, endpoints := objects[0].DeepCopyObject().(apis.Object), objects[1].DeepCopyObject().(apis.Object)
				g := newLagGround(t)
				if strings.HasPrefix(how, "created again") {
					g.put(own)
					g.put(endpoints)
					eventually(t, "in force", g.isClosed)
					g.remove(own)
				}
				release := make(chan struct{})
				if strings.HasSuffix(how, "hangs") {
					g.mu.Lock()
					g.hang[resource] = release
					g.mu.Unlock()
					g.cut()
				}
				g.tell("MODIFIED", own, false)
				g.put(endpoints)
				ref, _ := apis.RefOf(own)
				eventually(t, "missed", func() bool { return len(g.w.Orphans(ref.Kind)) == 1 })
				eventually(t, "in force", g.isClosed)
				for end := time.Now().Add(2 * orphanPeriod); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
					if create, running := g.closed(); !create || !running {
						t.Fatalf("it exists, and is in force for pods being created: %v, for running ones: %v", create, running)
					}
				}
				close(release)
				eventually(t, "seen", func() bool {
					g.put(own) // also to a watch that has only just begun
					return len(g.w.Orphans(ref.Kind)) == 0
				})
				if !g.isClosed() {
					t.Error("it is seen, and not in force")
				}
				g.remove(own) // its endpoints objects outlive it
				eventually(t, "gone", func() bool { create, running := g.closed(); return !create && !running })
			})
		}
	}
}
