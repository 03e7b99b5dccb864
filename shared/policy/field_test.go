package policy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// algebra is a policy of every kind of overlap: blocks, exceptions and ports of two policies.
func algebra(t testing.TB) Input {
	t.Helper()
	return Input{Policies: []Policy{
		np(t, "m1", Egress,
			"0.0.0.0/0 except 10.0.0.0/8,169.254.0.0/16",
			"10.0.0.0/7 -> TCP/443",
			"10.96.0.10/32 -> UDP/53",
			"10.1.0.0/16 -> TCP/80",
			"10.1.2.0/24 except 10.1.2.128/25 -> TCP/8080",
			"0.0.0.0/0 -> UDP/123",
			"169.254.170.23/32 -> TCP/80"),
		np(t, "m2", Egress,
			"10.1.2.200/32 -> TCP/8080",
			"172.16.0.0/12 except 172.16.5.0/24 -> TCP/22"),
	}}
}

// TestUnionAndExcept proves that exceptions take away from their own rule only, and that longer
// prefixes keep what shorter ones allow.
func TestUnionAndExcept(t *testing.T) {
	table := []row{
		{"198.51.100.7 TCP/9999; ICMP", Allow, "m1/0"},
		{"10.9.9.9 TCP/443", Allow, "m1/1"},
		{"10.9.9.9 TCP/444; ICMP", Deny, "m1/isolation"},
		{"11.1.1.1 TCP/444", Allow, "m1/0"},
		{"10.96.0.10 UDP/53", Allow, "m1/2"},
		{"10.96.0.10 TCP/443", Allow, "m1/1"},
		{"10.96.0.11 UDP/53", Deny, "m1/isolation"},
		{"10.1.7.7 TCP/80", Allow, "m1/3"},
		{"10.1.7.7 TCP/443", Allow, "m1/1"},
		{"10.1.2.5 TCP/8080", Allow, "m1/4"},
		{"10.1.2.5 TCP/80", Allow, "m1/3"},
		{"10.1.2.5 TCP/443", Allow, "m1/1"},
		{"10.1.2.5 UDP/123", Allow, "m1/5"},
		{"10.1.2.200 TCP/8080", Allow, "m2/0"},
		{"10.1.2.201 TCP/8080", Deny, "m1/isolation"},
		{"10.1.2.201 TCP/80", Allow, "m1/3"},
		{"169.254.169.254 TCP/80", Deny, "m1/isolation"},
		{"169.254.169.254 UDP/123", Allow, "m1/5"},
		{"169.254.170.23 TCP/80", Allow, "m1/6"},
		{"172.16.5.9 TCP/22", Allow, "m1/0"},
	}
	in := algebra(t)
	checkRows(t, in, Egress, table)

	t.Run("after the first rule is deleted", func(t *testing.T) {
		in := algebra(t)
		in.Policies[0].Rules[Egress] = in.Policies[0].Rules[Egress][1:]
		checkRows(t, in, Egress, []row{
			{"198.51.100.7 TCP/9999", Deny, "m1/isolation"},
			{"11.1.1.1 TCP/444", Deny, "m1/isolation"},
			{"11.1.1.1 TCP/443", Allow, "m1/0"},
			{"172.16.5.9 TCP/22", Deny, "m1/isolation"},
			{"172.16.6.9 TCP/22", Allow, "m2/1"},
			{"198.51.100.7 UDP/123", Allow, "m1/4"},
			{"10.1.2.200 UDP/123", Allow, "m1/4"},
			{"169.254.169.254 UDP/123", Allow, "m1/4"},
		})
	})

	want := Compile(in)
	for i := range table {
		if table[i].want == Allow {
			table[i].by = "*" // indexes move
		}
	}
	r := rand.New(rand.NewPCG(seed(t), 0))
	for i := range 50 {
		t.Run(fmt.Sprint("random order and split ", i), func(t *testing.T) {
			other := split(r, shuffled(r, in))
			checkRows(t, other, Egress, table)
			got := Compile(other)
			if diff := diffRules(want, got); diff != "" || want.Hash() != got.Hash() {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// split deals the rules of every policy out over two parts with the same reference.
func split(r *rand.Rand, in Input) Input {
	var out Input
	for _, p := range in.Policies {
		parts := [2]Policy{{Ref: p.Ref, Isolates: p.Isolates}, {Ref: p.Ref, Isolates: p.Isolates}}
		for _, d := range Directions {
			for _, rule := range p.Rules[d] {
				part := &parts[r.IntN(2)]
				part.Rules[d] = append(part.Rules[d], rule)
			}
		}
		out.Policies = append(out.Policies, parts[0], parts[1])
	}
	return out
}

// TestPortsAndProtocols proves that a rule may have any number of ports, ranges and protocols.
func TestPortsAndProtocols(t *testing.T) {
	ports := []string{"TCP/1", "TCP/32000-32767", "TCP/65535", "UDP/5000-5000", "SCTP/3868", "TCP/7777"}
	for p := 2000; p <= 3990; p += 10 {
		ports = append(ports, fmt.Sprint("TCP/", p))
	}
	in := Input{Policies: []Policy{np(t, "ports", Ingress,
		"10.0.1.11/32 -> "+strings.Join(ports, ","),
		"10.0.1.13/32 -> UDP",
		"10.0.1.53/32",
		"::/0 -> TCP/1")}}
	all := " TCP/1; TCP/2000; TCP/32000; UDP/5000; UDP/1; SCTP/3868; ICMP; 47"
	checkRows(t, in, Ingress, []row{
		{"10.0.1.11 TCP/1; TCP/32000; TCP/32400; TCP/32767; TCP/65535; TCP/7777", Allow, "ports/0"},
		{"10.0.1.11 TCP/2000; TCP/2230; TCP/2240; TCP/3990", Allow, "ports/0"},
		{"10.0.1.11 TCP/2; TCP/31999; TCP/32768; TCP/65534; TCP/2005; TCP/5000; TCP/3868; TCP/4000", Deny, "ports/isolation"},
		{"10.0.1.11 UDP/5000", Allow, "ports/0"},
		{"10.0.1.11 UDP/5001; UDP/7777; UDP/3868", Deny, "ports/isolation"},
		{"10.0.1.11 SCTP/3868", Allow, "ports/0"},
		{"10.0.1.11 SCTP/3869", Deny, "ports/isolation"},
		{"10.0.1.11 ICMP", Deny, "ports/isolation"},
		{"10.0.1.13 UDP/1; UDP/53; UDP/65535", Allow, "ports/1"},
		{"10.0.1.13 TCP/53; SCTP/53; ICMP", Deny, "ports/isolation"},
		{"10.0.1.53 TCP/9; UDP/9; SCTP/9; ICMP; 47", Allow, "ports/2"},
		{"203.0.113.9" + all, Deny, "ports/isolation"},
		{"fd00:10:1::11 TCP/1", Allow, "ports/3"},
		{"fd00:10:1::11 TCP/2", Deny, "ports/isolation"},
	})
}

// TestFieldReports holds the small cases that went wrong in the field, one each.
func TestFieldReports(t *testing.T) {
	var two []string
	for p := 1000; p < 1400; p += 2 {
		two = append(two, fmt.Sprint("TCP/", p))
	}
	for _, c := range []struct {
		name  string
		rules []string
		table []row
	}{
		{"everything except one address does not reach it", []string{"0.0.0.0/0 except 169.254.169.254/32"}, []row{
			{"169.254.169.254 TCP/80", Deny, "p/isolation"}, {"198.51.100.7 TCP/80", Allow, "p/0"}}},
		{"an exception of one rule is no deny of another",
			[]string{"169.254.169.254/32 -> TCP/80", "0.0.0.0/0 except 169.254.169.254/32 -> TCP/443"}, []row{
				{"169.254.169.254 TCP/80", Allow, "p/0"}, {"169.254.169.254 TCP/443", Deny, "p/isolation"}}},
		{"same block with and without exceptions",
			[]string{"0.0.0.0/0 -> TCP/53,UDP/53", "0.0.0.0/0 except 10.0.0.0/8"}, []row{
				{"198.51.100.7 TCP/443", Allow, "p/1"}, {"10.9.9.9 UDP/53", Allow, "p/0"},
				{"10.9.9.9 TCP/443", Deny, "p/isolation"}}},
		{"same block with and without ports", []string{"10.20.0.0/16", "10.20.0.0/16 -> TCP/8081"}, []row{
			{"10.20.9.9 TCP/9999", Allow, "p/0"}}},
		{"any port listed after a port",
			[]string{"192.168.0.0/16 -> TCP/53", "0.0.0.0/0 except 192.168.0.0/16", "192.168.0.0/16"}, []row{
				{"192.168.5.5 TCP/443", Allow, "p/2"}}},
		{"200 ports of one peer", []string{"198.51.100.7 -> " + strings.Join(two, ",")}, []row{
			{"198.51.100.7 TCP/1000; TCP/1046; TCP/1048; TCP/1398", Allow, "p/0"},
			{"198.51.100.7 TCP/1001; TCP/1047; TCP/1399", Deny, "p/isolation"}}},
		{"several blocks in one rule", []string{"10.0.1.11/32", "10.0.1.13/32"}, []row{
			{"10.0.1.11 TCP/1", Allow, "p/0"}, {"10.0.1.13 TCP/1", Allow, "p/1"}}},
		{"a longer prefix keeps the ports of a shorter one",
			[]string{"10.0.0.0/8 -> TCP/80", "10.0.1.0/24 -> TCP/443"}, []row{
				{"10.0.1.13 TCP/80", Allow, "p/0"}, {"10.0.1.13 TCP/443", Allow, "p/1"}}},
		{"a rule of the other family", []string{"0.0.0.0/0 -> TCP/443", "::/0 -> TCP/443"}, []row{
			{"2001:db8::7 TCP/443", Allow, "p/1"}, {"198.51.100.7 TCP/443", Allow, "p/0"}}},
		{"isolated without rules", nil, []row{{"10.0.1.11 TCP/80; ICMP", Deny, "p/isolation"}}},
		{"a list of ports that came out empty opens nothing", []string{"10.0.1.11 -> none"}, []row{
			{"10.0.1.11 TCP/80; UDP/80; ICMP", Deny, "p/isolation"}}},
		{"SCTP alone", []string{"10.0.1.11 -> SCTP/3868"}, []row{
			{"10.0.1.11 SCTP/3868", Allow, "p/0"}, {"10.0.1.11 TCP/3868", Deny, "p/isolation"}}},
		{"the whole range of ports", []string{"0.0.0.0/0 -> TCP/21000-21999"}, []row{
			{"10.9.9.9 TCP/21000; TCP/21500; TCP/21999", Allow, "p/0"},
			{"10.9.9.9 TCP/22000; TCP/20999", Deny, "p/isolation"}}},
		{"a host", []string{"198.51.100.7/32"}, []row{
			{"198.51.100.7 TCP/1", Allow, "p/0"}, {"198.51.100.6 TCP/1", Deny, "p/isolation"}}},
		{"the unspecified IPv6 host", []string{"::/128"}, []row{
			{":: TCP/1", Allow, "p/0"}, {"::1 TCP/1", Deny, "p/isolation"}}},
		{"half of all addresses", []string{"0.0.0.0/1"}, []row{
			{"127.255.255.255 TCP/1", Allow, "p/0"}, {"128.0.0.0 TCP/1", Deny, "p/isolation"}}},
		{"two hosts", []string{"198.51.100.6/31"}, []row{
			{"198.51.100.7 TCP/1", Allow, "p/0"}, {"198.51.100.8 TCP/1", Deny, "p/isolation"}}},
	} {
		for _, d := range Directions {
			t.Run(fmt.Sprint(c.name, ", ", d), func(t *testing.T) {
				checkRows(t, Input{Policies: []Policy{np(t, "p", d, c.rules...)}}, d, c.table)
			})
		}
	}
	t.Run("an exception of one policy is no deny of another", func(t *testing.T) {
		in := Input{Policies: []Policy{
			np(t, "p1", Egress, "0.0.0.0/0 except 10.0.0.0/8"), np(t, "p2", Egress, "10.200.0.10/32")}}
		checkRows(t, in, Egress, []row{
			{"10.200.0.10 TCP/1", Allow, "p2/0"}, {"10.200.0.11 TCP/1", Deny, "p1/isolation"}})
	})
}
