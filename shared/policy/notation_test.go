package policy

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// rule reads "10.0.0.0/8 except 10.1.0.0/16,10.2.0.0/16 -> TCP/80-90,UDP". Without an arrow it is
// every protocol and port; "-> none" is an empty list of ports. A bare address is a host.
func rule(t testing.TB, text string) Rule {
	t.Helper()
	var r Rule
	peer, ports, listed := strings.Cut(text, " -> ")
	r.AllPorts = !listed
	if listed && ports != "none" {
		for p := range strings.SplitSeq(ports, ",") {
			r.Ports = append(r.Ports, portRange(t, p))
		}
	}
	block, except, ok := strings.Cut(peer, " except ")
	r.Peer.Block = prefix(t, block)
	if ok {
		for e := range strings.SplitSeq(except, ",") {
			r.Peer.Except = append(r.Peer.Except, prefix(t, e))
		}
	}
	return r
}

func rules(t testing.TB, texts ...string) []Rule {
	t.Helper()
	var out []Rule
	for _, text := range texts {
		out = append(out, rule(t, text))
	}
	return out
}

// clusterRule reads "Deny 10.0.0.0/8 -> TCP/80".
func clusterRule(t testing.TB, text string) ClusterRule {
	t.Helper()
	action, rest, _ := strings.Cut(text, " ")
	a, ok := map[string]Action{"Deny": ActionDeny, "Accept": ActionAccept, "Pass": ActionPass}[action]
	if !ok {
		t.Fatalf("%q: no action", text)
	}
	return ClusterRule{Rule: rule(t, rest), Action: a}
}

// prefix does not mask host bits, as objects need not.
func prefix(t testing.TB, text string) netip.Prefix {
	t.Helper()
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func protocol(t testing.TB, text string) Protocol {
	t.Helper()
	if p, ok := map[string]Protocol{"TCP": TCP, "UDP": UDP, "SCTP": SCTP, "ICMP": 1}[text]; ok {
		return p
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil {
		t.Fatalf("protocol %q: %v", text, err)
	}
	return Protocol(n)
}

// portRange reads "TCP/80", "TCP/80-90" or "UDP".
func portRange(t testing.TB, text string) Ports {
	t.Helper()
	proto, ports, ok := strings.Cut(text, "/")
	p := Ports{Protocol: protocol(t, proto), First: 0, Last: 65535}
	if !ok {
		return p
	}
	first, last, ok := strings.Cut(ports, "-")
	p.First = port(t, first)
	if p.Last = p.First; ok {
		p.Last = port(t, last)
	}
	return p
}

func port(t testing.TB, text string) uint16 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		t.Fatalf("port %q: %v", text, err)
	}
	return uint16(n)
}

// packets reads "10.9.9.9 TCP/443; TCP/444; ICMP".
func packets(t testing.TB, text string) []probe {
	t.Helper()
	addr, rest, _ := strings.Cut(text, " ")
	a, err := netip.ParseAddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	var out []probe
	for p := range strings.SplitSeq(rest, ";") {
		proto, number, ok := strings.Cut(strings.TrimSpace(p), "/")
		q := probe{addr: a, proto: protocol(t, proto)}
		if ok {
			q.port = port(t, number)
		}
		out = append(out, q)
	}
	return out
}

// np is a NetworkPolicy in namespace t1 that isolates one direction.
func np(t testing.TB, name string, d Direction, texts ...string) Policy {
	t.Helper()
	p := Policy{Ref: PolicyRef{"NetworkPolicy", "t1", name}}
	p.Isolates[d] = true
	p.Rules[d] = rules(t, texts...)
	return p
}

// cnp is a ClusterNetworkPolicy with rules in one direction.
func cnp(t testing.TB, name string, tier Tier, priority int, d Direction, texts ...string) ClusterPolicy {
	t.Helper()
	p := ClusterPolicy{Ref: PolicyRef{Kind: "ClusterNetworkPolicy", Name: name}, Tier: tier, Priority: priority}
	for _, text := range texts {
		p.Rules[d] = append(p.Rules[d], clusterRule(t, text))
	}
	return p
}

// row is one line of a table of expectations. by is "policy/rule index", "policy/isolation", or ""
// for the default; "*" does not look.
type row struct {
	packets string
	want    Verdict
	by      string
}

// checkRows compares compiled rules, oracle and explanation with a table.
func checkRows(t *testing.T, in Input, d Direction, table []row) {
	t.Helper()
	compiled := Compile(in)
	checkShape(t, compiled)
	for _, r := range table {
		for _, p := range packets(t, r.packets) {
			e := Explain(in, d, p.addr, p.proto, p.port)
			if got := compiled.Lookup(d, p.addr, p.proto, p.port); got.Verdict != r.want {
				t.Errorf("want %v, rules say %v: %v", r.want, got.Verdict, e)
			}
			if got, _ := oracle(in, d, p.addr, p.proto, p.port); got != r.want {
				t.Errorf("want %v, oracle says %v: %v", r.want, got, e)
			}
			if got := decider(e); r.by != "*" && got != r.by || e.Verdict != r.want {
				t.Errorf("want %v by %q: %v", r.want, r.by, e)
			}
		}
	}
}

func decider(e Explanation) string {
	switch {
	case e.Tier == TierDefault:
		return ""
	case e.Decision.Isolation:
		return e.Decision.Policy.Name + "/isolation"
	}
	return e.Decision.Policy.Name + "/" + strconv.Itoa(e.Decision.Rule)
}
