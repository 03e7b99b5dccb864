package world

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// Makers of objects. All are in namespace t1 and, where they belong together, of policy p.

func labelsOf(s string) map[string]string {
	labels := map[string]string{}
	for _, l := range strings.Fields(s) {
		k, v, _ := strings.Cut(l, "=")
		labels[k] = v
	}
	return labels
}

func selectorOf(s string) metav1.LabelSelector { return metav1.LabelSelector{MatchLabels: labelsOf(s)} }

func makePod(name, labels string, tweaks ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: name, UID: types.UID(name + "-uid"), Labels: labelsOf(labels)},
		Spec:       corev1.PodSpec{NodeName: "n1"},
	}
	for _, tweak := range tweaks {
		tweak(p)
	}
	return p
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

// directions reads "I", "E" or "IE".
func directions(s string) (out []networkingv1.PolicyType) {
	for _, c := range s {
		out = append(out, map[rune]networkingv1.PolicyType{
			'I': networkingv1.PolicyTypeIngress, 'E': networkingv1.PolicyTypeEgress,
		}[c])
	}
	return out
}

func makeNP(name, selector, types string, tweaks ...func(*networkingv1.NetworkPolicy)) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: selectorOf(selector), PolicyTypes: directions(types)},
	}
	for _, tweak := range tweaks {
		tweak(p)
	}
	return p
}

func makeANP(name, selector, types string) *v1alpha1.ApplicationNetworkPolicy {
	return &v1alpha1.ApplicationNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: name},
		Spec:       v1alpha1.ApplicationNetworkPolicySpec{PodSelector: selectorOf(selector), PolicyTypes: directions(types)},
	}
}

// rule reads "10.0.0.0/8 TCP/80 UDP/53-60 SCTP": a peer and its ports.
func rule(s string) v1alpha1.EndpointInfo {
	fields := strings.Fields(s)
	r := v1alpha1.EndpointInfo{CIDR: fields[0]}
	for _, f := range fields[1:] {
		name, numbers, _ := strings.Cut(f, "/")
		p := v1alpha1.Port{Protocol: pointer(corev1.Protocol(name))}
		first, last, ranged := strings.Cut(numbers, "-")
		if n, err := strconv.Atoi(first); err == nil {
			p.Port = pointer(int32(n))
		}
		if n, err := strconv.Atoi(last); err == nil && ranged {
			p.EndPort = pointer(int32(n))
		}
		r.Ports = append(r.Ports, p)
	}
	return r
}

func pointer[T any](v T) *T { return &v }

type peTweak = func(*v1alpha1.PolicyEndpoint)

// makePE makes an endpoints object of policy t1/p.
func makePE(name, isolation string, tweaks ...peTweak) *v1alpha1.PolicyEndpoint {
	o := &v1alpha1.PolicyEndpoint{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "t1", Name: name,
			OwnerReferences: []metav1.OwnerReference{{Kind: apis.KindNetworkPolicy, Name: "p"}},
		},
		Spec: v1alpha1.PolicyEndpointSpec{
			PolicyRef:    v1alpha1.PolicyReference{Namespace: "t1", Name: "p"},
			PodIsolation: directions(isolation),
			PodSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"never": "matches"}},
		},
	}
	for _, tweak := range tweaks {
		tweak(o)
	}
	return o
}

func in(rules ...string) peTweak {
	return func(o *v1alpha1.PolicyEndpoint) {
		for _, r := range rules {
			o.Spec.Ingress = append(o.Spec.Ingress, rule(r))
		}
	}
}

func out(rules ...string) peTweak {
	return func(o *v1alpha1.PolicyEndpoint) {
		for _, r := range rules {
			o.Spec.Egress = append(o.Spec.Egress, rule(r))
		}
	}
}

func ofPolicy(kind, name string) peTweak {
	return func(o *v1alpha1.PolicyEndpoint) {
		o.Spec.PolicyRef.Name = name
		o.OwnerReferences = nil
		if kind != "" {
			o.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name}}
		}
	}
}

func copySelector(s string) peTweak {
	return func(o *v1alpha1.PolicyEndpoint) { o.Spec.PodSelector = pointer(selectorOf(s)) }
}

func listed(pods ...string) peTweak {
	return func(o *v1alpha1.PolicyEndpoint) {
		for _, p := range pods {
			o.Spec.PodSelectorEndpoints = append(o.Spec.PodSelectorEndpoints,
				v1alpha1.PodEndpoint{HostIP: nodeIP, Namespace: "t1", Name: p, PodIP: "10.0.1.99"})
		}
	}
}

func makeCNP(name string, subject v1alpha1.Subject, tweaks ...func(*v1alpha1.ClusterNetworkPolicy)) *v1alpha1.ClusterNetworkPolicy {
	p := &v1alpha1.ClusterNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ClusterNetworkPolicySpec{Tier: v1alpha1.TierAdmin, Priority: 10, Subject: subject},
	}
	for _, tweak := range tweaks {
		tweak(p)
	}
	return p
}

func makeCPE(name, parent string, tweaks ...func(*v1alpha1.ClusterPolicyEndpoint)) *v1alpha1.ClusterPolicyEndpoint {
	o := &v1alpha1.ClusterPolicyEndpoint{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ClusterPolicyEndpointSpec{
			PolicyRef: v1alpha1.ClusterPolicyReference{Name: parent}, Tier: v1alpha1.TierAdmin, Priority: 10,
		},
	}
	for _, tweak := range tweaks {
		tweak(o)
	}
	return o
}

const nodeIP = "10.0.0.10"

// stage is a World with a clock that stands still, and pods a1 and a2 (app=a), b (app=b).
type stage struct {
	t     *testing.T
	clock *clock
	*World
}

func newStage(t *testing.T, tweaks ...func(*Options)) *stage {
	t.Helper()
	s := &stage{t: t, clock: &clock{now: time.Unix(1000, 0)}}
	opts := Options{NodeName: "n1", NodeIPs: []netip.Addr{netip.MustParseAddr(nodeIP)}, Now: s.clock.Now}
	for _, tweak := range tweaks {
		tweak(&opts)
	}
	s.World = New(opts)
	s.Upsert(makePod("a1", "app=a"), makePod("a2", "app=a"), makePod("b", "app=b"))
	return s
}

// running says that pods with these labels run.
func (s *stage) running(labels ...string) {
	s.t.Helper()
	for _, l := range labels {
		s.SetRunning(idOf(l), true)
	}
}

func idOf(labels string) identity.Identifier { return identity.Of("t1", labelsOf(labels)) }

func (s *stage) pass(d time.Duration) []identity.Identifier {
	s.t.Helper()
	s.clock.Add(d)
	ids, _ := s.Due()
	return ids
}

func (s *stage) desired(labels string) Desired {
	s.t.Helper()
	d, ok := s.Desired(idOf(labels))
	if !ok {
		s.t.Fatalf("nothing is known about pods with %q", labels)
	}
	return d
}

// want checks traffic of pods with labels: "I:10.0.0.1 TCP/80" written as "create=A running=D".
func (s *stage) want(what, labels, probe, verdicts string) {
	s.t.Helper()
	d := s.desired(labels)
	if got := "create=" + judge(s.t, d.Create, probe) + " running=" + judge(s.t, d.Running, probe); got != verdicts {
		s.t.Errorf("%s: %s of %s is %s, want %s", what, probe, labels, got, verdicts)
	}
}

// judge compiles an input and probes "I:10.0.0.1 TCP/80".
func judge(t *testing.T, input policy.Input, probe string) string {
	t.Helper()
	dir, rest, _ := strings.Cut(probe, ":")
	addr, port, _ := strings.Cut(rest, " ")
	proto, number := parseTable(t, port)
	d := policy.Ingress
	if dir == "E" {
		d = policy.Egress
	}
	if policy.Compile(input).Lookup(d, netip.MustParseAddr(addr), proto, number).Verdict == policy.Allow {
		return "A"
	}
	return "D"
}
