package reconcile

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

const (
	nodeIP       = "10.0.0.10"
	podNames     = 8 // p0..p7, of which the odd ones are in t1
	policyNames  = 3 // in each namespace, of each kind
	chunkNames   = 4 // of a policy
	listedByRole = 3 // pods that a policy lists
)

// maker makes random objects. Few names, labels, blocks and ports, so that they meet again and again.
type maker struct {
	*rand.Rand
	uids [podNames]int
}

func (m *maker) pick(choices ...string) string { return choices[m.IntN(len(choices))] }
func (m *maker) namespace() string             { return m.pick("t0", "t1") }
func namespaceOf(pod int) string               { return fmt.Sprintf("t%d", pod%2) }

func (m *maker) labels() map[string]string {
	labels := map[string]string{}
	for _, l := range strings.Fields(m.pick("", "app=a", "app=b", "app=a tier=x", "app=b tier=x", "tier=y")) {
		k, v, _ := strings.Cut(l, "=")
		labels[k] = v
	}
	return labels
}

func (m *maker) selector() metav1.LabelSelector {
	s := metav1.LabelSelector{}
	switch m.IntN(8) {
	case 0, 1:
	case 2:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpDoesNotExist}}
	case 3:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"b", m.pick("a", "c")}}}
	case 4:
		s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{m.pick("a", "b")}}}
	default:
		s.MatchLabels = m.labels()
	}
	return s
}

func (m *maker) pod(i int) *corev1.Pod {
	m.uids[i] += m.IntN(2)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(i), Name: fmt.Sprintf("p%d", i), UID: types.UID(fmt.Sprintf("%d-%d", i, m.uids[i])), Labels: m.labels()},
		Spec:       corev1.PodSpec{NodeName: "n1", HostNetwork: m.IntN(12) == 0},
	}
	if m.IntN(12) == 0 {
		p.Spec.NodeName = "n2"
	}
	if m.IntN(12) == 0 {
		p.Status.Phase = corev1.PodSucceeded
	}
	return p
}

func (m *maker) ref() policy.PolicyRef {
	ref := policy.PolicyRef{Name: fmt.Sprintf("q%d", m.IntN(policyNames)), Namespace: m.namespace()}
	ref.Kind = m.pick(apis.KindNetworkPolicy, apis.KindNetworkPolicy, apis.KindApplicationNetworkPolicy, apis.KindClusterNetworkPolicy)
	if ref.Kind == apis.KindClusterNetworkPolicy {
		ref.Namespace = ""
	}
	return ref
}

func (m *maker) directions() (out []networkingv1.PolicyType) {
	for _, d := range strings.Fields(m.pick("Ingress", "Egress", "Ingress Egress", "")) {
		out = append(out, networkingv1.PolicyType(d))
	}
	return out
}

// policy makes a policy's own object.
func (m *maker) policy(ref policy.PolicyRef) apis.Object {
	meta := metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}
	switch ref.Kind {
	case apis.KindNetworkPolicy:
		return &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{PodSelector: m.selector(), PolicyTypes: m.directions()}}
	case apis.KindApplicationNetworkPolicy:
		return &v1alpha1.ApplicationNetworkPolicy{ObjectMeta: meta, Spec: v1alpha1.ApplicationNetworkPolicySpec{PodSelector: m.selector(), PolicyTypes: m.directions()}}
	}
	o := &v1alpha1.ClusterNetworkPolicy{ObjectMeta: meta, Spec: v1alpha1.ClusterNetworkPolicySpec{Tier: m.tier(), Priority: int32(m.IntN(3))}}
	switch m.IntN(6) {
	case 0: // selects nothing
	case 1, 2:
		s := m.selector()
		o.Spec.Subject.Namespaces = &s
	default:
		o.Spec.Subject.Pods = &v1alpha1.NamespacedPod{NamespaceSelector: m.selector(), PodSelector: m.selector()}
	}
	return o
}

func (m *maker) tier() v1alpha1.Tier { return v1alpha1.Tier(m.pick("Admin", "Baseline")) }

func chunkName(ref policy.PolicyRef, i int) string {
	return fmt.Sprintf("%s-%s-%d", strings.ToLower(ref.Kind), ref.Name, i)
}

// chunk makes an endpoints object of a policy. Whom it lists, and its copy of the selector, depends on the
// policy's name alone: without the policy's own object, earlier lists are remembered on purpose.
func (m *maker) chunk(ref policy.PolicyRef, i int) apis.Object {
	meta := metav1.ObjectMeta{Namespace: ref.Namespace, Name: chunkName(ref, i)}
	first := int(ref.Name[1] - '0')
	var listed []v1alpha1.PodEndpoint
	for n := first; n < first+listedByRole; n++ {
		if ref.Namespace == "" || ref.Namespace == namespaceOf(n) {
			listed = append(listed, v1alpha1.PodEndpoint{Namespace: namespaceOf(n), Name: fmt.Sprintf("p%d", n), HostIP: nodeIP})
		}
	}
	copied := &metav1.LabelSelector{MatchLabels: map[string]string{"app": string("ab"[first%2])}}
	if ref.Kind == apis.KindClusterNetworkPolicy {
		o := &v1alpha1.ClusterPolicyEndpoint{ObjectMeta: meta, Spec: v1alpha1.ClusterPolicyEndpointSpec{
			PolicyRef: v1alpha1.ClusterPolicyReference{Name: ref.Name}, Tier: m.tier(), Priority: int32(m.IntN(3)),
			Subject: &v1alpha1.Subject{Namespaces: copied}, PodSelectorEndpoints: listed,
		}}
		for range m.IntN(4) {
			o.Spec.Ingress = append(o.Spec.Ingress, m.clusterRule())
		}
		for range m.IntN(4) {
			o.Spec.Egress = append(o.Spec.Egress, m.clusterRule())
		}
		return o
	}
	o := &v1alpha1.PolicyEndpoint{ObjectMeta: meta, Spec: v1alpha1.PolicyEndpointSpec{
		PolicyRef: v1alpha1.PolicyReference{Namespace: ref.Namespace, Name: ref.Name}, PodIsolation: m.directions(),
		PodSelector: copied, PodSelectorEndpoints: listed,
	}}
	if m.IntN(10) > 0 || ref.Kind == apis.KindApplicationNetworkPolicy {
		o.OwnerReferences = []metav1.OwnerReference{{Kind: ref.Kind, Name: ref.Name}}
	}
	for range m.IntN(4) {
		o.Spec.Ingress = append(o.Spec.Ingress, m.rule())
	}
	for range m.IntN(4) {
		o.Spec.Egress = append(o.Spec.Egress, m.rule())
	}
	return o
}

func (m *maker) rule() v1alpha1.EndpointInfo {
	r := v1alpha1.EndpointInfo{CIDR: m.block(), Ports: m.ports()}
	for range m.IntN(3) * m.IntN(2) {
		r.Except = append(r.Except, m.block())
	}
	return r
}

func (m *maker) clusterRule() v1alpha1.ClusterEndpointInfo {
	return v1alpha1.ClusterEndpointInfo{CIDR: m.block(), Ports: m.ports(), Action: v1alpha1.Action(m.pick("Accept", "Deny", "Pass"))}
}

// block is seldom malformed.
func (m *maker) block() string {
	switch m.IntN(24) {
	case 0:
		return m.pick("10.9.0.0/33", "10.9.0", "::ffff:10.9.0.0/120")
	case 1:
		return m.pick("0.0.0.0/0", "::/0")
	case 2:
		return fmt.Sprintf("fd00:9::%d/%d", m.IntN(3), m.IntN(4)*2+122)
	case 3:
		return fmt.Sprintf("10.9.0.%d", m.IntN(8)) // a bare address
	}
	return fmt.Sprintf("10.9.%d.%d/%d", m.IntN(2), m.IntN(8), m.IntN(12)+21) // with host bits
}

// ports is seldom malformed.
func (m *maker) ports() (out []v1alpha1.Port) {
	for range m.IntN(4) {
		var p v1alpha1.Port
		if name := corev1.Protocol(m.pick("", "TCP", "UDP", "SCTP")); name != "" {
			p.Protocol = &name
		}
		first, last := int32(m.IntN(6)), int32(m.IntN(6))
		switch m.IntN(12) {
		case 0:
		case 1:
			p.EndPort = &last
		case 2, 3, 4:
			last = max(first, last)
			p.Port, p.EndPort = &first, &last
		case 5:
			p.Port, p.EndPort = &first, &last // may end before it starts
		default:
			p.Port = &first
		}
		out = append(out, p)
	}
	return out
}
