package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
)

// seed is fixed, so that a failure is the same for everybody. POLICY_SEED varies it.
func seed(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv("POLICY_SEED")
	if text == "" {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("parse POLICY_SEED: %v", err)
	}
	return n
}

// chooser is a source of choices: random numbers, or the bytes of a fuzzer.
type chooser interface{ IntN(n int) int }

// choosePrefix keeps prefixes few and close to each other, so that they nest, touch and coincide.
func choosePrefix(c chooser) netip.Prefix {
	switch c.IntN(20) {
	case 0:
		return netip.MustParsePrefix("0.0.0.0/0")
	case 1:
		return netip.MustParsePrefix("::/0")
	case 2:
		return netip.Prefix{}
	case 3:
		return netip.MustParsePrefix("::ffff:10.0.0.0/104")
	}
	if c.IntN(4) == 0 {
		a := netip.MustParseAddr("fd00::").As16()
		a[7], a[8], a[15] = byte(c.IntN(4)), byte(c.IntN(2)<<7), byte(c.IntN(3))
		return netip.PrefixFrom(netip.AddrFrom16(a), []int{8, 62, 63, 64, 65, 120, 127, 128}[c.IntN(8)])
	}
	a := [4]byte{10, byte(c.IntN(2)), byte(c.IntN(4) << 6), byte(c.IntN(256))}
	if c.IntN(6) == 0 {
		a = [4]byte{255, 255, 255, byte(253 + c.IntN(3))}
	}
	return netip.PrefixFrom(netip.AddrFrom4(a), []int{1, 7, 8, 15, 16, 17, 18, 24, 31, 32}[c.IntN(10)])
}

// chooseExcept mostly stays inside the block, where exceptions nest and touch.
func chooseExcept(c chooser, block netip.Prefix) netip.Prefix {
	if !block.IsValid() || c.IntN(4) == 0 {
		return choosePrefix(c)
	}
	first, last := ends(block)
	a := []netip.Addr{first, last, block.Addr()}[c.IntN(3)]
	longer := a.BitLen() - block.Bits()
	return netip.PrefixFrom(a, block.Bits()+min(longer, []int{0, 1, 2, 8, 16}[c.IntN(5)]))
}

func chooseRule(c chooser) Rule {
	r := Rule{Peer: Peer{Block: choosePrefix(c)}}
	for range c.IntN(4) * c.IntN(2) {
		r.Peer.Except = append(r.Peer.Except, chooseExcept(c, r.Peer.Block))
	}
	// Often the same few lists of ports, so that rules are of one source.
	if r.AllPorts = c.IntN(3) == 0; r.AllPorts {
		return r
	}
	if c.IntN(2) == 0 {
		r.Ports = []Ports{{TCP, 80, 443}}
		return r
	}
	edges := []uint16{0, 1, 53, 80, 81, 443, 8080, 32000, 65534, 65535}
	for range c.IntN(5) {
		p := Ports{Protocol: []Protocol{TCP, TCP, TCP, UDP, SCTP, 7}[c.IntN(6)]}
		p.First = edges[c.IntN(len(edges))]
		p.Last = p.First
		switch c.IntN(4) {
		case 0:
			p.Last = edges[c.IntN(len(edges))] // may end before it starts
		case 1:
			p.First, p.Last = 0, 65535
		}
		r.Ports = append(r.Ports, p)
	}
	return r
}

func chooseInput(c chooser) Input {
	var in Input
	for range c.IntN(4) {
		p := Policy{Ref: PolicyRef{"NetworkPolicy", "t1", fmt.Sprint("p", c.IntN(4))}}
		if c.IntN(8) == 0 {
			p.Ref.Kind = "ApplicationNetworkPolicy"
		}
		for _, d := range Directions {
			p.Isolates[d] = c.IntN(3) > 0
			for range c.IntN(5) {
				p.Rules[d] = append(p.Rules[d], chooseRule(c))
			}
		}
		in.Policies = append(in.Policies, p)
	}
	for range c.IntN(5) * c.IntN(2) {
		p := ClusterPolicy{
			Ref:      PolicyRef{Kind: "ClusterNetworkPolicy", Name: fmt.Sprint("c", c.IntN(4))},
			Tier:     []Tier{TierAdmin, TierBaseline}[c.IntN(2)],
			Priority: c.IntN(3),
		}
		for _, d := range Directions {
			for range c.IntN(5) {
				r := ClusterRule{Rule: chooseRule(c), Action: Action(c.IntN(3))}
				p.Rules[d] = append(p.Rules[d], r)
			}
		}
		in.Cluster = append(in.Cluster, p)
	}
	in.Default = [2]Verdict{Verdict(c.IntN(2)), Verdict(c.IntN(2))}
	return in
}

// shuffled returns an equal input with everything in another order.
func shuffled(r *rand.Rand, in Input) Input {
	in.Policies = mixed(r, in.Policies)
	for i := range in.Policies {
		for _, d := range Directions {
			rules := mixed(r, in.Policies[i].Rules[d])
			for j := range rules {
				rules[j] = shuffledRule(r, rules[j])
			}
			in.Policies[i].Rules[d] = rules
		}
	}
	in.Cluster = mixed(r, in.Cluster)
	for i := range in.Cluster {
		for _, d := range Directions {
			rules := mixed(r, in.Cluster[i].Rules[d])
			for j := range rules {
				rules[j].Rule = shuffledRule(r, rules[j].Rule)
			}
			in.Cluster[i].Rules[d] = rules
		}
	}
	return in
}

func shuffledRule(r *rand.Rand, rule Rule) Rule {
	rule.Peer.Except = mixed(r, rule.Peer.Except)
	rule.Ports = mixed(r, rule.Ports)
	return rule
}

func mixed[T any](r *rand.Rand, s []T) []T {
	s = slices.Clone(s)
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// probe is one packet.
type probe struct {
	addr  netip.Addr
	proto Protocol
	port  uint16
}

// probes are the packets at which a verdict can change: the edges of all blocks and exceptions and
// the addresses beside them, times the edges of all ports and those beside them.
func probes(in Input, d Direction) []probe {
	addrs := map[netip.Addr]bool{
		netip.MustParseAddr("192.0.0.8"): true, netip.MustParseAddr("2001:db8::1"): true,
	}
	ports := map[uint32]bool{0: true, PortKey(1, 0): true, PortKey(TCP, 80): true, PortKey(255, 65535): true}
	note := func(r Rule) {
		for _, p := range append([]netip.Prefix{r.Peer.Block}, r.Peer.Except...) {
			if p.IsValid() {
				first, last := ends(p)
				for _, a := range []netip.Addr{first, last, first.Prev(), last.Next()} {
					if a.IsValid() {
						addrs[a] = true
					}
				}
			}
		}
		for _, p := range r.Ports {
			for _, port := range []uint16{p.First - 1, p.First, p.Last, p.Last + 1} {
				ports[PortKey(p.Protocol, port)] = true
			}
		}
	}
	for _, p := range in.Policies {
		for _, r := range p.Rules[d] {
			note(r)
		}
	}
	for _, p := range in.Cluster {
		for _, r := range p.Rules[d] {
			note(r.Rule)
		}
	}
	var out []probe
	keys := slices.Sorted(maps.Keys(ports))
	for _, a := range slices.SortedFunc(maps.Keys(addrs), netip.Addr.Compare) {
		for _, k := range keys {
			out = append(out, probe{a, Protocol(k >> 16), uint16(k)})
		}
	}
	return out
}

// ends returns the first and the last address of a prefix.
func ends(p netip.Prefix) (first, last netip.Addr) {
	first = p.Masked().Addr()
	b := first.AsSlice()
	for i := p.Bits(); i < first.BitLen(); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ = netip.AddrFromSlice(b)
	return first, last
}
