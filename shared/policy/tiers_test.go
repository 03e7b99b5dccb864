package policy

import (
	"math/rand/v2"
	"testing"
)

// TestTiers proves the order of the tiers, and of the rules inside one.
func TestTiers(t *testing.T) {
	const in, eg = Ingress, Egress
	admin := func(name string, priority int, rules ...string) ClusterPolicy {
		return cnp(t, name, TierAdmin, priority, in, rules...)
	}
	base := func(name string, priority int, rules ...string) ClusterPolicy {
		return cnp(t, name, TierBaseline, priority, in, rules...)
	}
	allowAll, denyAll := np(t, "np", in, "0.0.0.0/0"), np(t, "np", in)
	other := np(t, "np", eg)
	both := denyAll
	both.Rules[in], both.Isolates = rules(t, "10.0.0.0/8"), [2]bool{false, true}

	for _, c := range []struct {
		name     string
		policies []Policy
		cluster  []ClusterPolicy
		fallback Verdict
		table    []row
	}{
		{"nothing at all, standard", nil, nil, Allow, []row{{"10.0.0.1 TCP/80; ICMP", Allow, ""}}},
		{"nothing at all, strict", nil, nil, Deny, []row{{"10.0.0.1 TCP/80; ICMP", Deny, ""}}},
		{"admin deny beats what a policy allows",
			[]Policy{allowAll}, []ClusterPolicy{admin("a", 5, "Deny 10.0.0.0/8 -> TCP/80")}, Allow,
			[]row{{"10.0.0.1 TCP/80", Deny, "a/0"}, {"10.0.0.1 TCP/81", Allow, "np/0"}, {"11.0.0.1 TCP/80", Allow, "np/0"}}},
		{"admin accept beats isolation",
			[]Policy{denyAll}, []ClusterPolicy{admin("a", 5, "Accept 10.0.0.0/8 -> TCP/80")}, Allow,
			[]row{{"10.0.0.1 TCP/80", Allow, "a/0"}, {"10.0.0.1 TCP/81", Deny, "np/isolation"}}},
		{"admin pass hands over to the policy",
			[]Policy{np(t, "np", in, "10.0.0.0/8 -> TCP/80")},
			[]ClusterPolicy{admin("a", 5, "Pass 10.0.0.0/8"), admin("b", 6, "Deny 0.0.0.0/0")}, Allow,
			[]row{{"10.0.0.1 TCP/80", Allow, "np/0"}, {"10.0.0.1 TCP/81", Deny, "np/isolation"}, {"11.0.0.1 TCP/80", Deny, "b/0"}}},
		{"admin pass hands over to baseline",
			nil, []ClusterPolicy{admin("a", 5, "Pass 10.0.0.0/8"), admin("a2", 6, "Accept 0.0.0.0/0"), base("b", 1, "Deny 0.0.0.0/0")}, Allow,
			[]row{{"10.0.0.1 TCP/80", Deny, "b/0"}, {"11.0.0.1 TCP/80", Allow, "a2/0"}}},
		{"admin pass and nothing else",
			nil, []ClusterPolicy{admin("a", 5, "Pass 10.0.0.0/8")}, Deny, []row{{"10.0.0.1 TCP/80", Deny, ""}}},
		{"lower priority number first, also for a shorter prefix",
			nil, []ClusterPolicy{admin("a", 1, "Deny 10.0.0.0/8"), admin("b", 2, "Accept 10.1.0.0/16")}, Allow,
			[]row{{"10.1.0.1 TCP/80", Deny, "a/0"}}},
		{"priority 0 comes before 1", nil,
			[]ClusterPolicy{admin("a", 1, "Deny 10.0.0.0/8"), admin("b", 0, "Accept 10.1.0.0/16")}, Allow,
			[]row{{"10.1.0.1 TCP/80", Allow, "b/0"}, {"10.2.0.1 TCP/80", Deny, "a/0"}}},
		{"deny before accept before pass in one policy, whatever the order",
			nil, []ClusterPolicy{admin("a", 5, "Pass 10.0.0.0/8", "Accept 10.0.0.0/8 -> TCP/80-90", "Deny 10.0.0.0/8 -> TCP/85")}, Deny,
			[]row{{"10.0.0.1 TCP/85", Deny, "a/2"}, {"10.0.0.1 TCP/80; TCP/90", Allow, "a/1"}, {"10.0.0.1 TCP/91", Deny, ""}}},
		{"deny before accept before pass over policies of one priority",
			nil, []ClusterPolicy{admin("a", 5, "Pass 10.0.0.0/8"), admin("b", 5, "Accept 10.0.0.0/9"), admin("c", 5, "Deny 10.0.0.0/10")}, Deny,
			[]row{{"10.0.0.1 TCP/85", Deny, "c/0"}, {"10.64.0.1 TCP/85", Allow, "b/0"}, {"10.128.0.1 TCP/85", Deny, ""}}},
		{"a policy beats baseline deny", []Policy{allowAll}, []ClusterPolicy{base("b", 0, "Deny 0.0.0.0/0")}, Allow,
			[]row{{"10.0.0.1 TCP/80", Allow, "np/0"}}},
		{"isolation never falls through to baseline", []Policy{np(t, "np", in, "10.0.0.0/8")},
			[]ClusterPolicy{base("b", 0, "Accept 0.0.0.0/0")}, Allow,
			[]row{{"11.0.0.1 TCP/80", Deny, "np/isolation"}}},
		{"baseline is asked per direction", []Policy{other}, []ClusterPolicy{base("b", 0, "Deny 10.0.0.0/8")}, Allow,
			[]row{{"10.0.0.1 TCP/80", Deny, "b/0"}, {"11.0.0.1 TCP/80", Allow, ""}}},
		{"baseline by priority, then action", nil,
			[]ClusterPolicy{base("b", 9, "Deny 0.0.0.0/0"), base("c", 8, "Accept 10.0.0.0/8"), base("d", 8, "Deny 10.1.0.0/16")}, Allow,
			[]row{{"10.0.0.1 TCP/80", Allow, "c/0"}, {"10.1.0.1 TCP/80", Deny, "d/0"}, {"11.0.0.1 TCP/80", Deny, "b/0"}}},
		{"baseline pass goes on to the default", nil,
			[]ClusterPolicy{base("b", 1, "Pass 10.0.0.0/8"), base("c", 2, "Deny 0.0.0.0/0")}, Allow,
			[]row{{"10.0.0.1 TCP/80", Allow, ""}, {"11.0.0.1 TCP/80", Deny, "c/0"}}},
		{"baseline accept in strict mode", nil, []ClusterPolicy{base("b", 1, "Accept 10.0.0.0/8 -> TCP/80")}, Deny,
			[]row{{"10.0.0.1 TCP/80", Allow, "b/0"}, {"10.0.0.1 TCP/81; ICMP", Deny, ""}}},
		{"strict mode and isolation of the other direction only", []Policy{other}, nil, Deny,
			[]row{{"10.0.0.1 TCP/80", Deny, ""}}},
		{"standard mode and isolation of the other direction only", []Policy{other}, nil, Allow,
			[]row{{"10.0.0.1 TCP/80", Allow, ""}}},
		{"rules of a direction that is not isolated are ignored", []Policy{both}, nil, Deny,
			[]row{{"10.0.0.1 TCP/80", Deny, ""}}},
		{"rules of a direction that only another policy isolates are ignored",
			[]Policy{both, np(t, "np2", in)}, nil, Allow, []row{{"10.0.0.1 TCP/80", Deny, "np2/isolation"}}},
		{"a cluster policy with the tier of namespaced ones is none", nil,
			[]ClusterPolicy{cnp(t, "x", TierNetworkPolicy, 0, in, "Deny 0.0.0.0/0"), cnp(t, "y", TierDefault, 0, in, "Deny 0.0.0.0/0")},
			Allow, []row{{"10.0.0.1 TCP/80", Allow, ""}}},
		{"an unknown action is no rule", nil, []ClusterPolicy{{
			Ref: PolicyRef{Kind: "ClusterNetworkPolicy", Name: "x"}, Tier: TierAdmin,
			Rules: [2][]ClusterRule{in: {{Rule: rule(t, "0.0.0.0/0"), Action: 3}}}}},
			Allow, []row{{"10.0.0.1 TCP/80", Allow, ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := Input{Policies: c.policies, Cluster: c.cluster, Default: [2]Verdict{c.fallback, c.fallback}}
			checkRows(t, in, Ingress, c.table)
			r := rand.New(rand.NewPCG(seed(t), 0))
			if diff := diffRules(Compile(in), Compile(shuffled(r, in))); diff != "" {
				t.Errorf("other order (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCredit proves which of several rules is named for a verdict: the first in canonical order.
func TestCredit(t *testing.T) {
	app := np(t, "a", Ingress, "10.0.0.0/8")
	app.Ref.Kind = "ApplicationNetworkPolicy"
	elsewhere := np(t, "z", Ingress, "10.9.0.0/16")
	elsewhere.Ref.Namespace = "a-namespace"
	in := Input{Policies: []Policy{
		np(t, "b", Ingress, "10.0.0.0/8", "10.0.0.0/8 -> TCP/80"),
		np(t, "a", Ingress, "10.1.0.0/16 -> TCP/80", "10.1.0.0/16 -> TCP/80,UDP"),
		app, elsewhere,
	}}
	compiled := Compile(in)
	for _, c := range []struct {
		packet string
		kind   string
		policy string
		ports  string
	}{
		{"10.2.0.1 TCP/80", "ApplicationNetworkPolicy", "a", ""},
		{"10.1.0.1 TCP/80", "ApplicationNetworkPolicy", "a", ""},
		{"10.9.0.1 TCP/80", "NetworkPolicy", "z", ""},
		{"11.0.0.1 TCP/80", "NetworkPolicy", "z", ""}, // isolation
	} {
		p := packets(t, c.packet)[0]
		s, ok := compiled.Source(compiled.Lookup(Ingress, p.addr, p.proto, p.port).Rule)
		if !ok || s.Policy.Kind != c.kind || s.Policy.Name != c.policy || s.Ports != c.ports {
			t.Errorf("%s: credited to %+v", c.packet, s)
		}
	}
}
