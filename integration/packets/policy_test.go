package packets

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/latch-cni/latch/shared/policy"
)

// input is everything that policies say about a pod.
func (g *ground) input(isolates string, rules []string) policy.Input {
	in := policy.Input{}
	if !g.o.strict {
		in.Default = [2]policy.Verdict{policy.Allow, policy.Allow}
	}
	if g.o.deny {
		deny := policy.ClusterPolicy{Ref: policy.PolicyRef{Kind: "ClusterNetworkPolicy", Name: "nothing"}, Tier: policy.TierAdmin}
		for _, d := range policy.Directions {
			for _, all := range []string{"0.0.0.0/0", "::/0"} {
				rule := policy.Rule{Peer: policy.Peer{Block: netip.MustParsePrefix(all)}, AllPorts: true}
				deny.Rules[d] = append(deny.Rules[d], policy.ClusterRule{Rule: rule, Action: policy.ActionDeny})
			}
		}
		in.Cluster = append(in.Cluster, deny)
	}
	if isolates == "" {
		return in
	}
	p := policy.Policy{Ref: policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "t1", Name: "p"}}
	p.Isolates[policy.Ingress] = strings.Contains(isolates, "I")
	p.Isolates[policy.Egress] = strings.Contains(isolates, "E")
	for _, text := range rules {
		d, rule := parseRule(text)
		p.Rules[d] = append(p.Rules[d], rule)
	}
	in.Policies = append(in.Policies, p)
	return in
}

// parseRule reads "DIRECTION PEER [PORT ...]": direction I or E; peer a block or an address; port
// PROTOCOL or PROTOCOL/N. No port is every protocol.
func parseRule(text string) (policy.Direction, policy.Rule) {
	words := strings.Fields(text)
	block, err := netip.ParsePrefix(words[1])
	if err != nil {
		a := addr(words[1])
		block = netip.PrefixFrom(a, a.BitLen())
	}
	rule := policy.Rule{Peer: policy.Peer{Block: block}, AllPorts: len(words) == 2}
	for _, w := range words[2:] {
		proto, number, whole := strings.Cut(w, "/")
		ports := policy.Ports{Protocol: map[string]policy.Protocol{"tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP}[proto], Last: 65535}
		if whole {
			n, err := strconv.ParseUint(number, 10, 16)
			if err != nil {
				panic(fmt.Sprintf("packets: rule %q", text))
			}
			ports.First, ports.Last = uint16(n), uint16(n)
		}
		rule.Ports = append(rule.Ports, ports)
	}
	return map[string]policy.Direction{"I": policy.Ingress, "E": policy.Egress}[words[0]], rule
}
