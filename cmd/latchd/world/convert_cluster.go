package world

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

// everywhere is every address.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// clusterRules reads rules so that what cannot be read opens nothing: an Accept rule is left out. Without a Deny rule,
// or a Pass rule, others would decide for what it may have meant: it denies that.
func (c *converter) clusterRules(field string, in []v1alpha1.ClusterEndpointInfo) []policy.ClusterRule {
	var out []policy.ClusterRule
	if !c.causes {
		out = make([]policy.ClusterRule, 0, len(in))
	}
	for i, r := range in {
		if r.CIDR == "" && r.DomainName != "" {
			c.domains++
			continue
		}
		out = c.clusterRule(out, place{field, i}, r)
		if c.causes {
			out = out[:0]
		}
	}
	return out
}

// clusterRule reads a rule about addresses and appends one for each block that it is about.
func (c *converter) clusterRule(out []policy.ClusterRule, at place, r v1alpha1.ClusterEndpointInfo) []policy.ClusterRule {
	action := c.action(at, r.Action)
	block, peerField, peerErr := parsePeer(r.CIDR, r.DomainName)
	ports, portsField, portsErr := c.convertPorts(r.Ports)
	if errors.As(peerErr, new(mappedError)) {
		c.report(at.String()+peerField, peerErr, leftOut)
		return out
	}
	blocks := []netip.Prefix{block}
	addresses, allPorts := leftOut, leftOut
	if action != policy.ActionAccept {
		addresses, allPorts = "every address is denied", "every port is denied"
	}
	if peerErr != nil {
		c.report(at.String()+peerField, peerErr, addresses)
		blocks = everywhere
	}
	if portsErr != nil {
		c.report(at.String()+portsField, portsErr, allPorts)
		ports = nil
	}
	if peerErr != nil || portsErr != nil {
		if action == policy.ActionAccept {
			return out
		}
		action = policy.ActionDeny
	}
	for _, b := range blocks {
		out = append(out, policy.ClusterRule{
			Rule:   policy.Rule{Peer: policy.Peer{Block: b}, AllPorts: len(ports) == 0, Ports: ports},
			Action: action,
		})
	}
	return out
}

// action reads an action. One that is not known is Deny.
func (c *converter) action(at place, a v1alpha1.Action) policy.Action {
	switch a {
	case v1alpha1.ActionAccept:
		return policy.ActionAccept
	case v1alpha1.ActionPass:
		return policy.ActionPass
	case v1alpha1.ActionDeny:
	default:
		c.report(at.String()+".action", fmt.Errorf("%q is no action", a), "taken for Deny")
	}
	return policy.ActionDeny
}

// denies says whether a rule of a policy's own object denies.
func (c *converter) denies(field string, rules []v1alpha1.ClusterPolicyRule) (any bool) {
	for i, r := range rules {
		any = c.action(place{field, i}, r.Action) == policy.ActionDeny || any
	}
	return any
}

// check reports what is not known of a rank, and says whether all is.
func (r rank) check(report func(field string, err error)) bool {
	tier := r.tier == v1alpha1.TierAdmin || r.tier == v1alpha1.TierBaseline
	if !tier {
		report("spec.tier", fmt.Errorf("%q is no tier", r.tier))
	}
	priority := r.priority >= 0 && r.priority <= 1000
	if !priority {
		report("spec.priority", fmt.Errorf("%d is not in 0..1000", r.priority))
	}
	return tier && priority
}

// rank reports what is not known of a rank, of which rank.of says what is done about it.
func (c *converter) rank(r rank) {
	r.check(func(field string, err error) {
		c.report(field, err, "only its Deny rules count, before all others, and Pass is taken for Deny")
	})
}
