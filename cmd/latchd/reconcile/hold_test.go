package reconcile

import (
	"encoding/hex"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// closes makes a policy that isolates all pods of the namespace, without endpoints objects.
func closes(name string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}
}

// allows makes the endpoints object of a policy.
func allows(name string, cidrs ...string) *v1alpha1.PolicyEndpoint {
	o := &v1alpha1.PolicyEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "-x"}}
	o.Spec.PolicyRef = v1alpha1.PolicyReference{Namespace: "shop", Name: name}
	o.Spec.PodIsolation = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	for _, c := range cidrs {
		o.Spec.Ingress = append(o.Spec.Ingress, v1alpha1.EndpointInfo{CIDR: c})
	}
	return o
}

// startPod starts the pod under what is known.
func (g *ground) startPod() (id identity.Identifier) {
	g.t.Helper()
	id = g.label("a", "u1")
	g.run(id)
	g.att.PodUID = "u1"
	g.release(g.bind(enforce.Request{Identifier: id}, id))
	g.run(id)
	return id
}

// wantRunning runs and audits, and checks that the pod has the rules of these endpoints objects, nil for
// open, and whether they are held.
func (g *ground) wantRunning(what string, id identity.Identifier, held bool, objects ...*v1alpha1.PolicyEndpoint) {
	g.t.Helper()
	g.run(id, id)
	if err := g.node.Do(func() error { return g.AuditOnce(ctx) }); err != nil {
		g.t.Fatal(err)
	}
	g.run(id)
	var in policy.Input
	in.Default = [2]policy.Verdict{policy.Allow, policy.Allow}
	for _, o := range objects {
		p := policy.Policy{Ref: policy.PolicyRef{Kind: apis.KindNetworkPolicy, Namespace: "shop", Name: o.Spec.PolicyRef.Name}}
		p.Isolates[policy.Ingress] = true
		for _, r := range o.Spec.Ingress {
			p.Rules[policy.Ingress] = append(p.Rules[policy.Ingress], policy.Rule{Peer: policy.Peer{Block: netip.MustParsePrefix(r.CIDR)}, AllPorts: true})
		}
		in.Policies = append(in.Policies, p)
	}
	want := policy.Compile(in).Hash()
	rec, err := g.store.ReadIdentifier(id)
	if err != nil || rec.Running.Hash != hex.EncodeToString(want[:]) {
		g.t.Errorf("%s: running pods have rules of %+v, want those of %d endpoints objects; %v", what, rec.Running.Sources, len(objects), err)
	}
	if d, _ := g.world.Desired(id); d.HoldRunning != held {
		g.t.Errorf("%s: what runs is held: %v, want %v", what, d.HoldRunning, held)
	}
}

// A policy that never had endpoints objects keeps no other from being edited, also after a restart.
func TestPendingPolicyHoldsNoOther(t *testing.T) {
	g := newGround(t)
	first, second := closes("first"), closes("second")
	g.world.Upsert(first, allows("first", "10.1.0.0/16"))
	id := g.startPod()
	g.world.Upsert(second)
	g.wantRunning("second is pending", id, false, allows("first", "10.1.0.0/16"))
	g.world.Upsert(allows("first", "10.2.0.0/16"))
	g.wantRunning("first is edited", id, false, allows("first", "10.2.0.0/16"))

	g.restart(first, allows("first", "10.2.0.0/16"), second)
	g.label("a", "u1")
	g.wantRunning("restarted", id, false, allows("first", "10.2.0.0/16"))
	g.world.Upsert(allows("first"))
	g.wantRunning("first is edited after the restart", id, false, allows("first"))
	g.world.Delete(first, allows("first"))
	g.wantRunning("second alone", id, false, allows("second"))
	g.world.Upsert(allows("second", "10.3.0.0/16"))
	g.wantRunning("second is known", id, false, allows("second", "10.3.0.0/16"))
}

// Rules that were in force stay while nobody knows them: the policy is there, and its endpoints objects
// have not been read since the restart.
func TestRulesStayWhileNobodyKnowsThem(t *testing.T) {
	g := newGround(t)
	first, second := closes("first"), closes("second")
	g.world.Upsert(first, second, allows("first", "10.1.0.0/16"), allows("second", "10.2.0.0/16"))
	id := g.startPod()
	both := []*v1alpha1.PolicyEndpoint{allows("first", "10.1.0.0/16"), allows("second", "10.2.0.0/16")}
	g.wantRunning("both known", id, false, both...)
	for range 2 {
		g.restart(first, allows("first"), second)
		g.label("a", "u1")
		g.wantRunning("restarted without the endpoints of second", id, true, both...)
	}
	g.world.Delete(first, allows("first"))
	g.wantRunning("first is deleted", id, true, both...)
	g.world.Upsert(allows("second", "10.4.0.0/16"))
	g.wantRunning("second is known", id, false, allows("second", "10.4.0.0/16"))
}

// A pod that was created under a policy without endpoints objects stays isolated by it.
func TestPendingIsolationSurvivesRestart(t *testing.T) {
	g := newGround(t)
	g.world.Upsert(closes("first"))
	id := g.startPod()
	g.wantRunning("created", id, false, allows("first"))
	g.restart(closes("first"))
	g.label("a", "u1")
	g.wantRunning("restarted", id, false, allows("first"))
	g.world.Upsert(allows("first", "10.1.0.0/16"))
	g.wantRunning("known", id, false, allows("first", "10.1.0.0/16"))
}

// A pod that ran before a policy without endpoints objects came stays open, and is isolated by another
// after the quiet time.
func TestPendingPolicyLeavesOpenPodAfterRestart(t *testing.T) {
	g := newGround(t)
	id := g.startPod()
	g.world.Upsert(closes("first"))
	g.wantRunning("pending", id, false)
	g.restart(closes("first"))
	g.label("a", "u1")
	g.wantRunning("restarted", id, false)
}

// A pod that was created under a cluster policy without endpoints objects stays denied by it.
func TestPendingClusterPolicySurvivesRestart(t *testing.T) {
	g := newGround(t)
	deny := &v1alpha1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1alpha1.ClusterNetworkPolicySpec{
		Tier: v1alpha1.TierAdmin, Subject: v1alpha1.Subject{Namespaces: &metav1.LabelSelector{}},
		Ingress: []v1alpha1.ClusterPolicyRule{{Action: v1alpha1.ActionDeny}},
	}}
	g.world.Upsert(deny)
	id := g.startPod()
	want := func(what string, denies bool) {
		t.Helper()
		g.run(id)
		rec, err := g.store.ReadIdentifier(id)
		if got := len(rec.Running.Sources) > 0; err != nil || got != denies {
			t.Errorf("%s: running pods have rules of %+v, denied %v, want %v; %v", what, rec.Running.Sources, got, denies, err)
		}
	}
	want("created", true)
	for range 2 {
		g.restart(deny)
		g.label("a", "u1")
		want("restarted", true)
	}
	g.world.Delete(deny)
	want("gone", false)
}
