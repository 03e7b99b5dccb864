package world

import (
	"slices"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

// TestPendingPolicy is D15: a policy without endpoints objects closes pods being created as its types
// say, and leaves running ones alone.
func TestPendingPolicy(t *testing.T) {
	withEgress := func(p *networkingv1.NetworkPolicy) {
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	}
	application := makeANP("p", "app=a", "")
	application.Spec.Egress = []struct{}{{}}
	tests := []struct {
		name            string
		object          apis.Object
		ingress, egress string
	}{
		{"ingress", makeNP("p", "app=a", "I"), "create=D running=A", "create=A running=A"},
		{"egress", makeNP("p", "app=a", "E"), "create=A running=A", "create=D running=A"},
		{"both", makeNP("p", "app=a", "IE"), "create=D running=A", "create=D running=A"},
		{"no types", makeNP("p", "app=a", ""), "create=D running=A", "create=A running=A"},
		{"no types, egress rules", makeNP("p", "app=a", "", withEgress), "create=D running=A", "create=D running=A"},
		{"types win over egress rules", makeNP("p", "app=a", "I", withEgress), "create=D running=A", "create=A running=A"},
		{"application policy without types", application, "create=D running=A", "create=D running=A"},
		{"a type that is none", makeNP("p", "app=a", "I", func(p *networkingv1.NetworkPolicy) {
			p.Spec.PolicyTypes = []networkingv1.PolicyType{"egress"}
		}), "create=D running=A", "create=D running=A"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			s.Synced()
			s.running("app=a")
			s.Upsert(tt.object)
			s.pass(time.Hour)
			s.want("pending", "app=a", stranger, tt.ingress)
			s.want("pending", "app=a", "E:203.0.113.9 TCP/80", tt.egress)
			d := s.desired("app=a")
			if len(d.Pending) != 1 || len(d.Problems) == 0 || d.HoldRunning || d.SameRunning || !d.RunningAt.IsZero() {
				t.Errorf("desired is %+v", d)
			}
		})
	}
}

// TestPendingEnds brings the rules of a pending policy: a pod that was created isolated gets them at once,
// one that ran before after the quiet time.
func TestPendingEnds(t *testing.T) {
	s := newStage(t)
	s.Synced()
	s.running("app=b")
	s.Upsert(makeNP("p", "", "I"))
	s.Applied(idOf("app=a"), s.desired("app=a"))
	s.running("app=a") // after its rules were prepared
	s.want("created under the pending policy", "app=a", stranger, "create=D running=D")
	s.want("ran before", "app=b", stranger, "create=D running=A")
	s.Upsert(makePE("x", "I", in("10.0.1.11 TCP/8080")))
	s.want("created under the pending policy", "app=a", friend, "create=A running=A")
	s.want("created under the pending policy", "app=a", stranger, "create=D running=D")
	s.want("ran before", "app=b", stranger, "create=D running=A")
	s.pass(500 * ms)
	s.want("ran before", "app=b", stranger, "create=D running=D")
}

// TestPendingAfterRestart keeps what an earlier run left in force for running pods: not the policy, its
// isolation, or rules that nobody knows any more.
func TestPendingAfterRestart(t *testing.T) {
	p := policy.PolicyRef{Kind: apis.KindNetworkPolicy, Namespace: "t1", Name: "p"}
	isolates := [2]bool{policy.Ingress: true}
	tests := []struct {
		name    string
		earlier Earlier
		pending string // verdict for what runs
		held    bool
		known   string // when the endpoints objects come
	}{
		{"not in force", Earlier{}, "A", false, "A"},
		{"isolated", Earlier{Isolates: isolates}, "D", false, "D"},
		{"rules", Earlier{Policies: []policy.PolicyRef{p}, Isolates: isolates}, "", true, "D"},
	}
	for _, tt := range tests {
		for _, first := range []string{"record", "policy", "sync"} {
			t.Run(tt.name+", "+first+" first", func(t *testing.T) {
				s := newStage(t)
				adopt := func() { s.Adopt(idOf("app=a"), "t1", labelsOf("app=a"), tt.earlier) }
				if first == "record" {
					adopt()
				}
				s.Upsert(makeNP("p", "app=a", "I"))
				if first == "policy" {
					adopt()
				}
				s.Synced()
				if first == "sync" {
					adopt()
				}
				for range 2 { // what is held is so after it was applied, too
					d := s.desired("app=a")
					if d.HoldRunning != tt.held {
						t.Fatalf("held is %v, want %v", d.HoldRunning, tt.held)
					}
					if !tt.held {
						s.want("pending", "app=a", stranger, "create=D running="+tt.pending)
					}
					s.Applied(idOf("app=a"), d)
				}
				s.Upsert(makePE("x", "I"))
				s.want("rules arrived", "app=a", stranger, "create=D running="+tt.known)
				s.pass(500 * ms)
				s.want("settled", "app=a", stranger, "create=D running=D")
				if d := s.desired("app=a"); d.HoldRunning || !d.SameRunning {
					t.Errorf("desired is %+v", d)
				}
			})
		}
	}
}

// TestHeldIsTold does not say of other policies that they are in force for what runs while it is held.
func TestHeldIsTold(t *testing.T) {
	p := policy.PolicyRef{Kind: apis.KindNetworkPolicy, Namespace: "t1", Name: "p"}
	s := newStage(t)
	s.Upsert(makeNP("p", "app=a", "I"), makeNP("q", "app=a", "E"), makePE("q-1", "E", ofPolicy(apis.KindNetworkPolicy, "q")))
	s.Synced()
	s.Adopt(idOf("app=a"), "t1", labelsOf("app=a"), Earlier{Policies: []policy.PolicyRef{p}})
	q := policy.PolicyRef{Kind: apis.KindNetworkPolicy, Namespace: "t1", Name: "q"}
	for _, held := range []bool{true, false} {
		d := s.desired("app=a")
		if waits := slices.Equal(d.Settling, []policy.PolicyRef{q}); d.HoldRunning != held || waits != held {
			t.Errorf("held %v, settling %v", d.HoldRunning, d.Settling)
		}
		s.Upsert(makePE("x", "I"))
	}
}

// TestEarlierRunEnds has no part in what comes when rules of this run are in the kernel.
func TestEarlierRunEnds(t *testing.T) {
	p := policy.PolicyRef{Kind: apis.KindNetworkPolicy, Namespace: "t1", Name: "p"}
	s := newStage(t)
	s.Synced()
	s.Adopt(idOf("app=a"), "t1", labelsOf("app=a"), Earlier{Policies: []policy.PolicyRef{p}, Isolates: [2]bool{policy.Ingress: true}})
	s.want("its policy is gone", "app=a", stranger, "create=A running=A")
	s.Applied(idOf("app=a"), s.desired("app=a"))
	s.Upsert(makeNP("p", "app=a", "I"))
	s.want("created again", "app=a", stranger, "create=D running=A")
	if s.desired("app=a").HoldRunning {
		t.Error("held for what another run had in force")
	}
}

// TestPendingWhileWritten is in force for pods that were bound before the write came to an end, though it
// failed.
func TestPendingWhileWritten(t *testing.T) {
	s := newStage(t)
	s.Synced()
	s.Applied(idOf("app=a"), s.desired("app=a"))
	s.Upsert(makeNP("p", "app=a", "I"))
	s.Applying(idOf("app=a"), s.desired("app=a"))
	s.running("app=a")
	s.want("written in part", "app=a", stranger, "create=D running=D")
}

// TestRestart has everything in force at once that is known when the first listing is complete.
func TestRestart(t *testing.T) {
	for _, first := range []string{"pods run", "policy", "sync"} {
		s := newStage(t)
		if first == "pods run" {
			s.running("app=a")
		}
		s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I"))
		if first == "policy" {
			s.running("app=a")
		}
		s.Synced()
		s.running("app=a")
		s.want(first+" first", "app=a", stranger, "create=D running=D")
	}
}

// TestReplacedByPendingPolicy stays closed when the policy in force goes and its successor has no rules yet.
func TestReplacedByPendingPolicy(t *testing.T) {
	s := newStage(t)
	s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I", in("10.0.1.11 TCP/8080")))
	s.Synced()
	s.running("app=a")
	s.Upsert(makeNP("q", "app=a", "I"))
	s.want("both", "app=a", friend, "create=A running=A")
	s.Delete(makeNP("p", "", ""), makePE("x", ""))
	s.want("successor only", "app=a", stranger, "create=D running=D")
}

// TestPendingClusterPolicy denies pods being created everything in the directions that have Deny rules.
func TestPendingClusterPolicy(t *testing.T) {
	s := newStage(t)
	s.Synced()
	s.running("app=a")
	everything := v1alpha1.Subject{Namespaces: pointer(selectorOf(""))}
	s.Upsert(makeCNP("c", everything, func(p *v1alpha1.ClusterNetworkPolicy) {
		p.Spec.Ingress = []v1alpha1.ClusterPolicyRule{{Action: v1alpha1.ActionAccept}}
		p.Spec.Egress = []v1alpha1.ClusterPolicyRule{{Action: v1alpha1.ActionAccept}, {Action: v1alpha1.ActionDeny}}
	}))
	s.want("pending", "app=a", stranger, "create=A running=A")
	s.want("pending", "app=a", "E:203.0.113.9 TCP/80", "create=D running=A")
	if d := s.desired("app=a"); len(d.Pending) != 1 || d.Pending[0] != (policy.PolicyRef{Kind: apis.KindClusterNetworkPolicy, Name: "c"}) {
		t.Errorf("pending are %v", d.Pending)
	}
	s.Upsert(makeCPE("c-1", "c", func(o *v1alpha1.ClusterPolicyEndpoint) {
		o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{{CIDR: "203.0.113.0/24", Action: v1alpha1.ActionDeny}}
	}))
	s.want("arrived", "app=a", "E:203.0.113.9 TCP/80", "create=D running=D")
	s.want("arrived", "app=a", "E:198.51.100.7 TCP/80", "create=A running=A")
}

// TestCreatedUnderPendingClusterPolicy keeps a pod that was created closed as it was: until the rules come, or
// the policy goes. What ran before is left alone.
func TestCreatedUnderPendingClusterPolicy(t *testing.T) {
	const out = "E:203.0.113.9 TCP/80"
	everything := v1alpha1.Subject{Namespaces: pointer(selectorOf(""))}
	cnp := makeCNP("c", everything, func(p *v1alpha1.ClusterNetworkPolicy) {
		p.Spec.Egress = []v1alpha1.ClusterPolicyRule{{Action: v1alpha1.ActionDeny}}
	})
	for _, end := range []string{"rules come", "policy goes"} {
		t.Run(end, func(t *testing.T) {
			s := newStage(t)
			s.Synced()
			s.running("app=b")
			s.Upsert(cnp)
			s.Applied(idOf("app=a"), s.desired("app=a"))
			s.running("app=a") // after its rules were prepared
			for range 2 {
				s.want("created under the pending policy", "app=a", out, "create=D running=D")
				s.want("ran before", "app=b", out, "create=D running=A")
				s.Applied(idOf("app=a"), s.desired("app=a"))
				s.Upsert(makeNP("p", "app=z", "I")) // what does not concern it
				s.pass(time.Hour)
			}
			if end == "policy goes" {
				s.Delete(cnp)
				s.want("gone", "app=a", out, "create=A running=A")
				return
			}
			s.Upsert(makeCPE("c-1", "c", func(o *v1alpha1.ClusterPolicyEndpoint) {
				o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{{CIDR: "198.51.100.0/24", Action: v1alpha1.ActionDeny}}
			}))
			s.want("rules came", "app=a", out, "create=A running=A")
			s.want("rules came", "app=a", "E:198.51.100.7 TCP/80", "create=D running=D")
		})
	}
}
