package reconcile

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

// subject is who is judged: all pods of one identifier.
type subject struct {
	namespace string
	labels    map[string]string // nil: known by being listed only
	pods      map[string]bool   // names
}

// packet is one that is judged.
type packet struct {
	direction policy.Direction
	remote    netip.Addr
	protocol  corev1.Protocol
	port      int32
}

// verdict is what the objects that are there say about a packet, by the words of the API and of design.md
// alone: every time from the beginning, rule by rule. It shares nothing with World or the compiler.
func (h *history) verdict(policies map[policy.PolicyRef][]apis.Object, s subject, p packet) policy.Verdict {
	isolated, allowed := false, false
	tiers := map[v1alpha1.Tier][4]bool{} // by action, of the first priority that has a match
	first := map[v1alpha1.Tier]int32{}
	for ref, chunks := range policies {
		if !h.selects(ref, chunks, s) {
			continue
		}
		for _, c := range chunks {
			switch c := c.(type) {
			case *v1alpha1.ClusterPolicyEndpoint:
				tier, priority := c.Spec.Tier, c.Spec.Priority
				for _, r := range [2][]v1alpha1.ClusterEndpointInfo{c.Spec.Ingress, c.Spec.Egress}[p.direction] {
					action := r.Action
					hit, readable := matches(p, r.CIDR, nil, r.Ports)
					if !readable && action == v1alpha1.ActionPass {
						action = v1alpha1.ActionDeny // else others would decide (D19)
					}
					if !hit || !readable && action == v1alpha1.ActionAccept {
						continue
					}
					if was, ok := first[tier]; !ok || priority < was {
						first[tier], tiers[tier] = priority, [4]bool{}
					}
					if priority == first[tier] {
						t := tiers[tier]
						t[slices.Index([]v1alpha1.Action{v1alpha1.ActionDeny, v1alpha1.ActionAccept, v1alpha1.ActionPass}, action)] = true
						tiers[tier] = t
					}
				}
			}
		}
		if ref.Namespace == "" || !slices.Contains(h.types(ref, chunks), direction(p.direction)) {
			continue // its rules do not count for the direction (D11)
		}
		isolated = true
		for _, c := range chunks {
			if c, ok := c.(*v1alpha1.PolicyEndpoint); ok {
				for _, r := range [2][]v1alpha1.EndpointInfo{c.Spec.Ingress, c.Spec.Egress}[p.direction] {
					hit, readable := matches(p, r.CIDR, r.Except, r.Ports)
					allowed = allowed || hit && readable
				}
			}
		}
	}
	admin, baseline := tiers[v1alpha1.TierAdmin], tiers[v1alpha1.TierBaseline]
	switch {
	case admin[0]:
		return policy.Deny
	case admin[1]:
		return policy.Allow
	case allowed:
		return policy.Allow
	case isolated, baseline[0]:
		return policy.Deny
	case baseline[1]:
		return policy.Allow
	}
	return h.fallback
}

func direction(d policy.Direction) networkingv1.PolicyType {
	return [2]networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}[d]
}

// types are the directions that a policy isolates, by its endpoints objects, by its own object, or by default.
func (h *history) types(ref policy.PolicyRef, chunks []apis.Object) (types []networkingv1.PolicyType) {
	rules := 0 // for egress
	for _, o := range chunks {
		c := o.(*v1alpha1.PolicyEndpoint)
		types, rules = append(types, c.Spec.PodIsolation...), rules+len(c.Spec.Egress)
	}
	if len(types) > 0 {
		return types
	}
	switch o := h.object(ref).(type) {
	case *networkingv1.NetworkPolicy:
		types, rules = o.Spec.PolicyTypes, len(o.Spec.Egress)
	case *v1alpha1.ApplicationNetworkPolicy:
		types, rules = o.Spec.PolicyTypes, len(o.Spec.Egress)
	}
	switch {
	case len(types) > 0:
		return types
	case rules > 0:
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	}
	return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
}

// matches judges one rule. What of it cannot be read may mean any address, or any port.
func matches(p packet, cidr string, except []string, ports []v1alpha1.Port) (hit, readable bool) {
	block, readable := parse(cidr)
	hit = !readable || block.Contains(p.remote)
	for _, e := range except {
		x, ok := parse(e)
		readable = readable && ok && !x.Addr().Is4In6()
		hit = hit && !x.Contains(p.remote)
	}
	hitPort := len(ports) == 0
	for _, port := range ports {
		protocol := corev1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		from, to := int32(0), int32(65535)
		if port.Port != nil {
			from, to = *port.Port, *port.Port
		}
		if port.EndPort != nil {
			to = *port.EndPort
		}
		if port.EndPort != nil && port.Port == nil || to < from {
			return hit, false
		}
		hitPort = hitPort || protocol == p.protocol && from <= p.port && p.port <= to
	}
	return hit && hitPort, readable
}

func parse(s string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	return p, err == nil
}

// selects says whether a policy governs pods (D14, D16).
func (h *history) selects(ref policy.PolicyRef, chunks []apis.Object, s subject) bool {
	if ref.Namespace != "" && ref.Namespace != s.namespace {
		return false
	}
	if h.object(ref) == nil {
		_, had := h.had[ref]
		if had || slices.Contains(h.complete, ref.Kind) {
			return false // endpoints objects that have outlived their policy
		}
		if h.lists(chunks, s) {
			return true
		}
		return s.labels != nil && slices.ContainsFunc(chunks, func(o apis.Object) bool {
			if c, ok := o.(*v1alpha1.PolicyEndpoint); ok {
				return selected(c.Spec.PodSelector, s.labels)
			}
			return selected(o.(*v1alpha1.ClusterPolicyEndpoint).Spec.Subject.Namespaces, h.namespaceLabels(s.namespace))
		})
	}
	namespaces, pods := &metav1.LabelSelector{}, &metav1.LabelSelector{}
	switch o := h.object(ref).(type) {
	case *networkingv1.NetworkPolicy:
		pods = &o.Spec.PodSelector
	case *v1alpha1.ApplicationNetworkPolicy:
		pods = &o.Spec.PodSelector
	case *v1alpha1.ClusterNetworkPolicy:
		if namespaces = o.Spec.Subject.Namespaces; o.Spec.Subject.Pods != nil {
			namespaces, pods = &o.Spec.Subject.Pods.NamespaceSelector, &o.Spec.Subject.Pods.PodSelector
		}
		if h.objects[apis.Ref{Kind: apis.KindNamespace, Name: s.namespace}] == nil && h.lists(chunks, s) {
			return true // nobody knows the namespace's labels
		}
	}
	inNamespace := ref.Namespace != "" || selected(namespaces, h.namespaceLabels(s.namespace))
	if s.labels == nil {
		everything := len(pods.MatchLabels)+len(pods.MatchExpressions) == 0
		return inNamespace && everything || h.lists(chunks, s)
	}
	return inNamespace && selected(pods, s.labels)
}

func selected(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set))
}

func (h *history) namespaceLabels(name string) map[string]string {
	out := map[string]string{corev1.LabelMetadataName: name}
	if o := h.objects[apis.Ref{Kind: apis.KindNamespace, Name: name}]; o != nil {
		maps.Copy(out, o.GetLabels())
	}
	return out
}

func (h *history) lists(chunks []apis.Object, s subject) bool {
	return slices.ContainsFunc(chunks, func(o apis.Object) bool {
		return slices.ContainsFunc(listOf(o), func(p v1alpha1.PodEndpoint) bool { return p.Namespace == s.namespace && s.pods[p.Name] })
	})
}

func listOf(o apis.Object) []v1alpha1.PodEndpoint {
	switch o := o.(type) {
	case *v1alpha1.PolicyEndpoint:
		return o.Spec.PodSelectorEndpoints
	case *v1alpha1.ClusterPolicyEndpoint:
		return o.Spec.PodSelectorEndpoints
	}
	return nil
}
