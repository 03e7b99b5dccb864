package world

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/identity"
)

// selected names the policies of pods with these labels.
func (s *stage) selected(labels string) []string {
	s.t.Helper()
	var names []string
	for _, ref := range s.desired(labels).Policies {
		names = append(names, refString(ref))
	}
	return names
}

// TestSelects asks which policies select pods a1 and a2 (app=a), of which all that a case does not
// change is as newStage makes it.
func TestSelects(t *testing.T) {
	np, anp := []string{"NetworkPolicy t1/p"}, []string{"ApplicationNetworkPolicy t1/p"}
	tests := []struct {
		name string
		do   func(s *stage)
		want []string
	}{
		{name: "by the policy's own selector", want: np, do: func(s *stage) {
			s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I"))
		}},
		{name: "not by the selector copied into the endpoints object", do: func(s *stage) {
			s.Upsert(makeNP("p", "app=z", "I"), makePE("x", "I", copySelector("app=a")))
		}},
		{name: "not by being listed, when the policy's own selector says no", do: func(s *stage) {
			s.Upsert(makeNP("p", "app=z", "I"), makePE("x", "I", listed("a1")))
		}},
		{name: "policy object arrives last", want: np, do: func(s *stage) {
			s.Upsert(makePE("x", "I"))
			s.Upsert(makeNP("p", "app=a", "I"))
		}},
		{name: "matchExpressions", want: np, do: func(s *stage) {
			s.Upsert(makePE("x", "I"), makeNP("p", "", "I", func(p *networkingv1.NetworkPolicy) {
				p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
					{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"b"}},
				}
			}))
		}},
		{name: "another namespace", do: func(s *stage) {
			s.Upsert(makeNP("p", "", "I", func(p *networkingv1.NetworkPolicy) { p.Namespace = "t2" }))
		}},
		{name: "endpoints alone: one pod of the identifier is listed", want: np, do: func(s *stage) {
			s.Upsert(makePE("x", "I", listed("a2")))
		}},
		{name: "endpoints alone: another pod is listed", do: func(s *stage) {
			s.Upsert(makePE("x", "I", listed("b")))
		}},
		{name: "endpoints alone: not listed yet", want: np, do: func(s *stage) {
			s.Upsert(makePE("x", "I", copySelector("app=a")))
		}},
		{name: "endpoints alone: no selector at all", do: func(s *stage) {
			s.Upsert(makePE("x", "I", func(o *v1alpha1.PolicyEndpoint) { o.Spec.PodSelector = nil }))
		}},
		{name: "endpoints alone: listed once, and not any more", do: func(s *stage) {
			s.Upsert(makePE("x", "I", copySelector("app=a"), listed("a1", "a2")))
			s.Upsert(makePE("x", "I", copySelector("app=a")))
		}},
		{name: "endpoints alone: one of two is not listed any more", want: np, do: func(s *stage) {
			s.Upsert(makePE("x", "I", copySelector("app=a"), listed("a1", "a2")))
			s.Upsert(makePE("x", "I", copySelector("app=a"), listed("a2")))
		}},
		{name: "endpoints alone: terminating pods leave the list but keep their policy", want: np, do: func(s *stage) {
			s.Upsert(makePE("x", "I", listed("a1", "a2")))
			s.Upsert(makePod("a1", "app=a", terminating), makePod("a2", "app=a", terminating))
			s.Upsert(makePE("x", "I"))
		}},
		{name: "endpoints alone: a new pod of the name has not been listed yet", want: np, do: func(s *stage) {
			s.Upsert(makePE("x", "I", copySelector("app=a"), listed("a1", "a2")))
			s.Upsert(makePE("x", "I", copySelector("app=a")))
			for _, name := range []string{"a1", "a2"} {
				s.Delete(makePod(name, ""))
				s.Upsert(makePod(name, "app=a", func(p *corev1.Pod) { p.UID = "new" }))
			}
		}},
		{name: "endpoints alone: the entry is of an earlier pod of the name", do: func(s *stage) {
			for _, name := range []string{"a1", "a2"} {
				s.Upsert(makePod(name, "app=a", func(p *corev1.Pod) { p.Status.PodIP = "10.0.1.98" }))
			}
			s.Upsert(makePE("x", "I", listed("a1", "a2")))
		}},
		{name: "endpoints alone: the entry has the pod's address", want: np, do: func(s *stage) {
			s.Upsert(makePod("a1", "app=a", func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.1.99"}} }))
			s.Upsert(makePE("x", "I", listed("a1")))
		}},
		{name: "kind by owner reference", want: anp, do: func(s *stage) {
			s.Upsert(makeNP("p", "app=z", "I"), makeANP("p", "app=a", "I"), makePE("x", "I", ofPolicy(apis.KindApplicationNetworkPolicy, "p")))
			s.Upsert(makePE("y", "I"))
		}},
		{name: "no owner reference, application policy there", want: anp, do: func(s *stage) {
			s.Upsert(makePE("x", "I", ofPolicy("", "p")))
			s.Upsert(makeANP("p", "app=a", "I"))
		}},
		{name: "no owner reference, both there", want: np, do: func(s *stage) {
			s.Upsert(makeANP("p", "app=z", "I"), makePE("x", "I", ofPolicy("", "p")), makeNP("p", "app=a", "I"))
		}},
		{name: "no owner reference, application policy goes", do: func(s *stage) {
			s.Upsert(makeANP("p", "app=a", "I"), makePE("x", "I", ofPolicy("", "p"), copySelector("app=z")))
			s.Delete(makeANP("p", "", ""))
		}},
		{name: "endpoints object changes its policy", want: []string{"NetworkPolicy t1/q"}, do: func(s *stage) {
			s.Upsert(makePE("x", "I", copySelector("app=a")))
			s.Upsert(makePE("x", "I", copySelector("app=a"), ofPolicy(apis.KindNetworkPolicy, "q")))
		}},
		{name: "own selector that does not parse: endpoints decide", want: np, do: func(s *stage) {
			s.Upsert(makePE("x", "I", listed("a1")), makeNP("p", "", "I", func(p *networkingv1.NetworkPolicy) {
				p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Within"}}
			}))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			s.Synced()
			tt.do(s)
			if diff := cmp.Diff(tt.want, s.selected("app=a")); diff != "" {
				t.Error("policies: want -, have +:\n", diff)
			}
			if d := s.desired("app=a"); len(d.Pending) > 0 {
				t.Errorf("pending are %v: the endpoints objects belong to another policy", d.Pending)
			}
		})
	}
}

// TestLocalPods says which pods have an identifier here.
func TestLocalPods(t *testing.T) {
	host := func(host, ip string) peTweak {
		return func(o *v1alpha1.PolicyEndpoint) {
			o.Spec.PodSelectorEndpoints = append(o.Spec.PodSelectorEndpoints,
				v1alpha1.PodEndpoint{HostIP: host, PodIP: ip, Namespace: "t1", Name: "p"})
		}
	}
	byLabels, byName := idOf("app=p"), identity.OfName("t1", "p")
	complete := func(o *Options) { o.PodsComplete = true }
	tests := []struct {
		name    string
		tweak   func(*Options)
		objects []apis.Object
		want    identity.Identifier
	}{
		{name: "on this node", objects: []apis.Object{makePod("p", "app=p")}, want: byLabels},
		{name: "on another node", objects: []apis.Object{makePod("p", "app=p", func(p *corev1.Pod) { p.Spec.NodeName = "n2" })}},
		{name: "on any node, when ours has no name", tweak: func(o *Options) { o.NodeName = "" },
			objects: []apis.Object{makePod("p", "app=p", func(p *corev1.Pod) { p.Spec.NodeName = "n2" })}, want: byLabels},
		{name: "without a node", objects: []apis.Object{makePod("p", "app=p", func(p *corev1.Pod) { p.Spec.NodeName = "" })}, want: byLabels},
		{name: "without a node, from an API server", tweak: complete,
			objects: []apis.Object{makePod("p", "app=p", func(p *corev1.Pod) { p.Spec.NodeName = "" })}},
		{name: "in the network of the host", objects: []apis.Object{makePod("p", "app=p", func(p *corev1.Pod) { p.Spec.HostNetwork = true })}},
		{name: "succeeded", objects: []apis.Object{makePod("p", "app=p", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}},
		{name: "failed", objects: []apis.Object{makePod("p", "app=p", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}},
		{name: "terminating", objects: []apis.Object{makePod("p", "app=p", terminating)}, want: byLabels},
		{name: "listed only", objects: []apis.Object{makePE("x", "I", host(nodeIP, "10.0.1.9"))}, want: byName},
		{name: "listed only, host in another notation", objects: []apis.Object{makePE("x", "I", host("::ffff:"+nodeIP, "10.0.1.9"))}, want: byName},
		{name: "listed only, on another host", objects: []apis.Object{makePE("x", "I", host("10.0.0.11", "10.0.1.9"))}},
		{name: "listed only, on any host when ours is not known", tweak: func(o *Options) { o.NodeIPs = nil },
			objects: []apis.Object{makePE("x", "I", host("10.0.0.11", "10.0.1.9"))}, want: byName},
		{name: "listed only, without a host", objects: []apis.Object{makePE("x", "I", host("", "10.0.1.9"))}, want: byName},
		{name: "listed only, in the network of the host", objects: []apis.Object{makePE("x", "I", host(nodeIP, nodeIP))}},
		{name: "listed only, from an API server", tweak: complete, objects: []apis.Object{makePE("x", "I", host(nodeIP, "10.0.1.9"))}},
		{name: "listed, and known to be elsewhere", objects: []apis.Object{
			makePE("x", "I", host(nodeIP, "10.0.1.9")),
			makePod("p", "app=p", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }),
		}},
		{name: "listed, then seen", objects: []apis.Object{makePE("x", "I", host(nodeIP, "10.0.1.9")), makePod("p", "app=p")}, want: byLabels},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opts := Options{NodeName: "n1", NodeIPs: []netip.Addr{netip.MustParseAddr(nodeIP)}}
			if tt.tweak != nil {
				tt.tweak(&opts)
			}
			w := New(opts)
			for _, o := range tt.objects {
				w.Upsert(o)
			}
			var want []identity.Identifier
			if tt.want != "" {
				want = append(want, tt.want)
			}
			if diff := cmp.Diff(want, w.Identifiers(), cmp.Transformer("nil", func(l []identity.Identifier) []identity.Identifier {
				return append([]identity.Identifier{}, l...)
			})); diff != "" {
				t.Error("identifiers: want -, have +:\n", diff)
			}
			if w.HasPod("t1", "p") != (tt.want != "") {
				t.Errorf("HasPod is %v", w.HasPod("t1", "p"))
			}
		})
	}
}

// TestListedPod is selected by being listed, by the empty selector, and by nothing when it is not listed.
func TestListedPod(t *testing.T) {
	s := newStage(t)
	s.Synced()
	id := identity.OfName("t1", "ghost")
	policies := func() []string {
		d, ok := s.Desired(id)
		if !ok {
			return nil
		}
		var names []string
		for _, ref := range d.Policies {
			names = append(names, ref.Name)
		}
		return names
	}
	s.Upsert(makePE("x", "I", listed("ghost")))
	s.Upsert(makePE("q-1", "I", ofPolicy(apis.KindNetworkPolicy, "q")), makeNP("q", "", "I"))
	s.Upsert(makePE("r-1", "I", ofPolicy(apis.KindNetworkPolicy, "r")), makeNP("r", "app=a", "I"))
	if diff := cmp.Diff([]string{"p", "q"}, policies()); diff != "" {
		t.Error("want -, have +:\n", diff)
	}
	if d, _ := s.Desired(id); d.Labels != nil || !slices.Equal(d.Pods, []PodRef{{Namespace: "t1", Name: "ghost"}}) {
		t.Errorf("desired is %+v", d)
	}
	affected := s.Upsert(makePE("x", "I"))
	if !slices.Contains(affected, id) || policies() != nil {
		t.Errorf("still there: %v, affected %v", policies(), affected)
	}
}

// TestRunningWithoutPod keeps an identifier, and follows its policy, while something of it is attached.
func TestRunningWithoutPod(t *testing.T) {
	s := newStage(t)
	s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I", in("10.0.1.11 TCP/8080")))
	s.Synced()
	s.running("app=a")
	s.Delete(makePod("a1", ""), makePod("a2", ""))
	if d := s.desired("app=a"); len(d.Pods) != 0 {
		t.Errorf("pods are %v", d.Pods)
	}
	s.want("pods are gone", "app=a", stranger, "create=D running=D")
	s.Upsert(makePE("x", "I", in("203.0.113.9")))
	s.want("edited", "app=a", stranger, "create=A running=A")
	s.SetRunning(idOf("app=a"), false)
	if _, ok := s.Desired(idOf("app=a")); ok {
		t.Error("identifier is kept without pods and attachments")
	}
}

// TestAdopt knows an identifier from a record, before and without its pods.
func TestAdopt(t *testing.T) {
	s := newStage(t)
	s.Adopt(idOf("app=c"), "t1", labelsOf("app=c"), Earlier{})
	s.Upsert(makeNP("p", "app=c", "I"), makePE("x", "I"))
	s.want("adopted", "app=c", stranger, "create=D running=D")
	s.Synced()
	s.Adopt(idOf("app=d"), "t1", labelsOf("app=d"), Earlier{})
	s.want("adopted, and selected by nothing", "app=d", stranger, "create=A running=A")
	s.Upsert(makeNP("p", "", "I"))
	s.want("adopted, and selected by an edit", "app=d", stranger, "create=D running=A")
}

// TestAdoptWithoutLabels takes over a pod that is known by being listed, before it is listed again. Labels
// that nobody knows are not no labels.
func TestAdoptWithoutLabels(t *testing.T) {
	s := newStage(t)
	id := identity.OfName("t1", "x")
	s.Adopt(id, "t1", nil, Earlier{})
	s.Upsert(makeNP("none", "", "I", func(p *networkingv1.NetworkPolicy) {
		p.Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}
	}), makePE("none", "I", ofPolicy(apis.KindNetworkPolicy, "none")))
	if d, _ := s.Desired(id); len(d.Policies) > 0 {
		t.Errorf("a pod without known labels is selected by %v", d.Policies)
	}
	s.Upsert(makeNP("p", "app=a", "I"), makePE("p", "I", listed("x")))
	if d, _ := s.Desired(id); len(d.Policies) != 1 || !d.Create.Policies[0].Isolates[0] {
		t.Errorf("a listed pod is selected by %v", d.Policies)
	}
}

// TestAdoptWithWrongLabels believes the pod, not the record of an earlier run.
func TestAdoptWithWrongLabels(t *testing.T) {
	s := newStage(t)
	s.Adopt(identity.Of("t1", labelsOf("app=c")), "t1", nil, Earlier{})
	s.Upsert(makeNP("p", "app=c", "I"), makePE("x", "I"), makePod("c", "app=c"))
	if got := s.selected("app=c"); len(got) != 1 {
		t.Errorf("selected by %v", got)
	}
}

// TestSubjectOfNothing is edited into one of everything, and back.
func TestSubjectOfNothing(t *testing.T) {
	s := newStage(t)
	nothing, everything := makeCNP("c", v1alpha1.Subject{}), makeCNP("c", v1alpha1.Subject{Namespaces: &metav1.LabelSelector{}})
	s.Upsert(makeCPE("x", "c"))
	for _, tt := range []struct {
		object *v1alpha1.ClusterNetworkPolicy
		want   int
	}{{nothing, 0}, {everything, 1}, {nothing, 0}} {
		s.Upsert(tt.object)
		if got := s.selected("app=a"); len(got) != tt.want {
			t.Errorf("subject %+v selects by %v, want %d policies", tt.object.Spec.Subject, got, tt.want)
		}
	}
}
