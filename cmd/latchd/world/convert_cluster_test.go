package world

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

// TestConvertClusterRule converts one rule. Where the closed side of one that cannot be read is Deny, that is what it
// becomes.
func TestConvertClusterRule(t *testing.T) {
	bad := []v1alpha1.Port{port("TCP", 80), port("ICMP")}
	type rule = v1alpha1.ClusterEndpointInfo
	tests := []struct {
		name    string
		rule    rule
		want    string
		problem string
	}{
		{name: "accept", rule: rule{Action: "Accept", CIDR: "10.0.0.1", Ports: []v1alpha1.Port{port("UDP", 53)}}, want: "Accept 10.0.0.1/32 [{UDP 53 53}]"},
		{name: "pass", rule: rule{Action: "Pass", CIDR: "::/0"}, want: "Pass ::/0 all"},
		{name: "deny", rule: rule{Action: "Deny", CIDR: "10.1.1.1/8"}, want: "Deny 10.0.0.0/8 all"},
		{name: "accept with bad ports", rule: rule{Action: "Accept", CIDR: "10.0.0.1", Ports: bad},
			problem: `spec.egress[0].ports[1].protocol: "ICMP" is no protocol with ports: the rule is left out`},
		{name: "pass with bad ports", rule: rule{Action: "Pass", CIDR: "10.0.0.1", Ports: bad}, want: "Deny 10.0.0.1/32 all",
			problem: `spec.egress[0].ports[1].protocol: "ICMP" is no protocol with ports: every port is denied`},
		{name: "deny with bad ports", rule: rule{Action: "Deny", CIDR: "10.0.0.1", Ports: bad}, want: "Deny 10.0.0.1/32 all",
			problem: `spec.egress[0].ports[1].protocol: "ICMP" is no protocol with ports: every port is denied`},
		{name: "accept with a bad address", rule: rule{Action: "Accept", CIDR: "ten"}, problem: `spec.egress[0].cidr: "ten" is no block of addresses: the rule is left out`},
		{name: "pass with a bad address", rule: rule{Action: "Pass", CIDR: "ten"}, want: "Deny 0.0.0.0/0 all, Deny ::/0 all",
			problem: `spec.egress[0].cidr: "ten" is no block of addresses: every address is denied`},
		{name: "deny with a bad address", rule: rule{Action: "Deny", CIDR: "10.244.0.12O", Ports: []v1alpha1.Port{port("UDP", 53)}},
			want:    "Deny 0.0.0.0/0 [{UDP 53 53}], Deny ::/0 [{UDP 53 53}]",
			problem: `spec.egress[0].cidr: "10.244.0.12O" is no block of addresses: every address is denied`},
		{name: "deny without a peer", rule: rule{Action: "Deny"}, want: "Deny 0.0.0.0/0 all, Deny ::/0 all",
			problem: "spec.egress[0]: has neither cidr nor domainName: every address is denied"},
		{name: "deny with both peers", rule: rule{Action: "Deny", CIDR: "10.0.0.1", DomainName: "a.b"}, want: "Deny 0.0.0.0/0 all, Deny ::/0 all",
			problem: "spec.egress[0]: has both cidr and domainName: every address is denied"},
		{name: "accept with both peers", rule: rule{Action: "Accept", CIDR: "10.0.0.1", DomainName: "a.b"}, problem: "spec.egress[0]: has both"},
		{name: "deny with a mapped address", rule: rule{Action: "Deny", CIDR: "::ffff:10.0.0.1"},
			problem: `spec.egress[0].cidr: "::ffff:10.0.0.1" is an IPv4 block written as IPv6, which no packet matches: the rule is left out`},
		{name: "domain", rule: rule{Action: "Accept", DomainName: "a.b"}, problem: "1 rules name a domain"},
		{name: "unknown action", rule: rule{Action: "Log", CIDR: "10.0.0.1"}, want: "Deny 10.0.0.1/32 all",
			problem: `spec.egress[0].action: "Log" is no action: taken for Deny`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := makeCPE("x", "c")
			o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{tt.rule}
			c := convertClusterPolicyEndpoint(o, apis.Ref{Kind: apis.KindClusterPolicyEndpoint, Name: "x"}, Options{})
			var got []string
			for _, r := range c.cluster[policy.Egress] {
				ports := "all"
				if !r.AllPorts {
					ports = fmt.Sprint(r.Ports)
				}
				got = append(got, fmt.Sprintf("%s %v %s", [...]string{"Deny", "Accept", "Pass"}[r.Action], r.Peer.Block, ports))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Error("rules: want -, have +:\n", diff)
			}
			wantProblems(t, c.problems, tt.problem)
		})
	}
}

// malformed spoils a field of a cluster policy's endpoints object with one rule.
var malformed = map[string]func(*v1alpha1.ClusterPolicyEndpointSpec, *v1alpha1.ClusterEndpointInfo){
	"letter in the address": cidr("10.9.0.1O"),
	"no address":            cidr("ten"),
	"too long a prefix":     cidr("10.9.0.1/33"),
	"zone":                  cidr("fe80::1%eth0"),
	"no peer":               cidr(""),
	"two peers":             func(_ *v1alpha1.ClusterPolicyEndpointSpec, r *v1alpha1.ClusterEndpointInfo) { r.DomainName = "a.b" },
	"protocol":              ports(port("tcp", 80)),
	"port":                  ports(port("TCP", 8080000)),
	"endPort":               ports(port("TCP", 80, 79)),
	"endPort alone":         ports(v1alpha1.Port{EndPort: pointer(int32(80))}),
	"one port of two":       ports(port("UDP", 53), port("TCP", -80)),
	"address and ports": func(s *v1alpha1.ClusterPolicyEndpointSpec, r *v1alpha1.ClusterEndpointInfo) {
		cidr("ten")(s, r)
		ports(port("tcp", 80))(s, r)
	},
	"action":        func(_ *v1alpha1.ClusterPolicyEndpointSpec, r *v1alpha1.ClusterEndpointInfo) { r.Action += "s" },
	"tier":          func(s *v1alpha1.ClusterPolicyEndpointSpec, _ *v1alpha1.ClusterEndpointInfo) { s.Tier += "s" },
	"high priority": func(s *v1alpha1.ClusterPolicyEndpointSpec, _ *v1alpha1.ClusterEndpointInfo) { s.Priority = 10000 },
	"low priority":  func(s *v1alpha1.ClusterPolicyEndpointSpec, _ *v1alpha1.ClusterEndpointInfo) { s.Priority = -1 },
}

func cidr(c string) func(*v1alpha1.ClusterPolicyEndpointSpec, *v1alpha1.ClusterEndpointInfo) {
	return func(_ *v1alpha1.ClusterPolicyEndpointSpec, r *v1alpha1.ClusterEndpointInfo) { r.CIDR = c }
}

func ports(p ...v1alpha1.Port) func(*v1alpha1.ClusterPolicyEndpointSpec, *v1alpha1.ClusterEndpointInfo) {
	return func(_ *v1alpha1.ClusterPolicyEndpointSpec, r *v1alpha1.ClusterEndpointInfo) { r.Ports = p }
}

// TestMalformedOpensNothing spoils every field of a rule, whatever it says and whatever other policies say: what is
// denied while the rule can be read is denied when it cannot.
func TestMalformedOpensNothing(t *testing.T) {
	everything := v1alpha1.Subject{Namespaces: pointer(selectorOf(""))}
	other := func(name string, tier v1alpha1.Tier, priority int32, action v1alpha1.Action) []apis.Object {
		return []apis.Object{
			makeCNP(name, everything, func(p *v1alpha1.ClusterNetworkPolicy) { p.Spec.Tier, p.Spec.Priority = tier, priority }),
			makeCPE(name+"-1", name, func(o *v1alpha1.ClusterPolicyEndpoint) {
				o.Spec.Tier, o.Spec.Priority = tier, priority
				o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{{CIDR: "0.0.0.0/0", Action: action}, {CIDR: "::/0", Action: action}}
			}),
		}
	}
	beside := map[string][]apis.Object{
		"nothing":          nil,
		"Admin accepts":    other("o", v1alpha1.TierAdmin, 20, v1alpha1.ActionAccept),
		"Admin is first":   other("o", v1alpha1.TierAdmin, 0, v1alpha1.ActionPass),
		"Admin is last":    other("o", v1alpha1.TierAdmin, 1000, v1alpha1.ActionAccept),
		"isolated":         {makeNP("p", "", "E"), makePE("x", "E")},
		"allowed":          {makeNP("p", "", "E"), makePE("x", "E", out("0.0.0.0/0", "::/0"))},
		"Baseline accepts": other("o", v1alpha1.TierBaseline, 20, v1alpha1.ActionAccept),
		"Baseline denies":  other("o", v1alpha1.TierBaseline, 20, v1alpha1.ActionDeny),
		"isolated, and accepted": append(other("o", v1alpha1.TierAdmin, 20, v1alpha1.ActionAccept),
			makeNP("p", "", "E"), makePE("x", "E")),
	}
	verdicts := func(others []apis.Object, o *v1alpha1.ClusterPolicyEndpoint) (denied []string) {
		s := newStage(t)
		s.Synced()
		s.Upsert(others...)
		s.Upsert(makeCNP("c", everything, func(p *v1alpha1.ClusterNetworkPolicy) { p.Spec.Tier, p.Spec.Priority = o.Spec.Tier, o.Spec.Priority }), o)
		for _, probe := range []string{"10.9.0.1 TCP/80", "10.9.0.1 UDP/53", "10.9.0.2 TCP/80", "fd00::1 TCP/80"} {
			if judge(t, s.desired("app=a").Create, "E:"+probe) == "D" {
				denied = append(denied, probe)
			}
		}
		return denied
	}
	for with, others := range beside {
		for field, spoil := range malformed {
			for _, action := range []v1alpha1.Action{v1alpha1.ActionAccept, v1alpha1.ActionDeny, v1alpha1.ActionPass} {
				for _, tier := range []v1alpha1.Tier{v1alpha1.TierAdmin, v1alpha1.TierBaseline} {
					good := makeCPE("c-1", "c", func(o *v1alpha1.ClusterPolicyEndpoint) {
						o.Spec.Tier = tier
						o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{{CIDR: "10.9.0.1", Action: action, Ports: []v1alpha1.Port{port("TCP", 80)}}}
					})
					bad := good.DeepCopy()
					spoil(&bad.Spec, &bad.Spec.Egress[0])
					what := fmt.Sprintf("%s beside %q with a malformed %s %s", tier, with, field, action)
					want, have := verdicts(others, good), verdicts(others, bad)
					for _, probe := range want {
						if !strings.Contains(strings.Join(have, ","), probe) {
							t.Errorf("%s: %s is allowed, and was denied", what, probe)
						}
					}
					c := convertClusterPolicyEndpoint(bad, apis.Ref{}, Options{})
					if len(c.problems) == 0 {
						t.Errorf("%s: nobody is told", what)
					}
				}
			}
		}
	}
}

// A cluster policy whose endpoints objects are not there denies for a rule with an action that is none, too.
func TestPendingMalformedAction(t *testing.T) {
	s := newStage(t)
	s.Synced()
	s.Upsert(makeCNP("c", v1alpha1.Subject{Namespaces: pointer(selectorOf(""))}, func(p *v1alpha1.ClusterNetworkPolicy) {
		p.Spec.Egress = []v1alpha1.ClusterPolicyRule{{Action: "deny"}}
	}))
	s.want("pending", "app=a", "E:10.9.0.1 TCP/80", "create=D running=D")
	s.want("pending", "app=a", stranger, "create=A running=A")
	if p := s.desired("app=a").Problems; len(p) != 2 || p[0].Field != "spec.egress[0].action" {
		t.Errorf("problems are %v", p)
	}
}
