package world

import (
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// Check returns the values of an object that are taken for something else, since they cannot be read or are of no use,
// without what that is: for who has something better, as an earlier version. Of selectors it says nothing.
func Check(o apis.Object) []apis.Problem {
	ref, _ := apis.RefOf(o)
	c := converter{object: ref.String(), causes: true}
	switch o := o.(type) {
	case *networkingv1.NetworkPolicy:
		c.isolation("spec.policyTypes", o.Spec.PolicyTypes)
	case *v1alpha1.ApplicationNetworkPolicy:
		c.isolation("spec.policyTypes", o.Spec.PolicyTypes)
	case *v1alpha1.ClusterNetworkPolicy:
		c.rank(rank{o.Spec.Tier, o.Spec.Priority})
		c.denies("spec.ingress", o.Spec.Ingress)
		c.denies("spec.egress", o.Spec.Egress)
	case *v1alpha1.PolicyEndpoint:
		c.isolation("spec.podIsolation", o.Spec.PodIsolation)
		c.rules("spec.ingress", o.Spec.Ingress)
		c.rules("spec.egress", o.Spec.Egress)
		c.listing(o.Spec.PodSelectorEndpoints, Options{})
	case *v1alpha1.ClusterPolicyEndpoint:
		c.rank(rank{o.Spec.Tier, o.Spec.Priority})
		c.clusterRules("spec.ingress", o.Spec.Ingress)
		c.clusterRules("spec.egress", o.Spec.Egress)
		c.listing(o.Spec.PodSelectorEndpoints, Options{})
	}
	return c.done()
}

// HostBits returns the first of an object's blocks of addresses that has bits set behind its prefix. Kubernetes allows
// that, and it may be a mistake.
func HostBits(o apis.Object) (p apis.Problem, found bool) {
	switch o := o.(type) {
	case *v1alpha1.PolicyEndpoint:
		for d, rules := range [2][]v1alpha1.EndpointInfo{o.Spec.Ingress, o.Spec.Egress} {
			for i, r := range rules {
				if block, has := hostBits(r.CIDR); has {
					return hasHostBits(d, i, r.CIDR, block), true
				}
				for _, s := range r.Except {
					if block, has := hostBits(s); has {
						return hasHostBits(d, i, s, block), true
					}
				}
			}
		}
	case *v1alpha1.ClusterPolicyEndpoint:
		for d, rules := range [2][]v1alpha1.ClusterEndpointInfo{o.Spec.Ingress, o.Spec.Egress} {
			for i, r := range rules {
				if block, has := hostBits(r.CIDR); has {
					return hasHostBits(d, i, r.CIDR, block), true
				}
			}
		}
	}
	return p, false
}

func hostBits(s string) (netip.Prefix, bool) {
	block, err := netip.ParsePrefix(s)
	return block.Masked(), err == nil && block != block.Masked()
}

func hasHostBits(direction, rule int, s string, block netip.Prefix) apis.Problem {
	return apis.Problem{
		Field:   fmt.Sprintf("spec.%s[%d]", [2]string{"ingress", "egress"}[direction], rule),
		Message: fmt.Sprintf("%q has bits set behind its prefix and is taken for %v", s, block),
	}
}
