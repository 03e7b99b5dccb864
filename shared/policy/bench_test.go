package policy

import (
	"fmt"
	"net/netip"
	"testing"
)

// manyPeers is one policy with n host peers, most of them with the same ports.
func manyPeers(n int) Input {
	p := Policy{Ref: PolicyRef{"NetworkPolicy", "t1", "many"}, Isolates: [2]bool{true, true}}
	for i := range n {
		r := Rule{
			Peer:  Peer{Block: hostPrefix(i)},
			Ports: []Ports{{TCP, 443, 443}, {TCP, 8080, 8090}},
		}
		if i%10 == 0 {
			r.Ports = []Ports{{UDP, 53, 53}, {TCP, uint16(1000 + i%70), 2000}}
		}
		p.Rules[Egress] = append(p.Rules[Egress], r)
	}
	return Input{Policies: []Policy{p}}
}

func hostPrefix(i int) netip.Prefix {
	i = i * 7919 % (1 << 24) // spread, and in no order
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
}

// nestedBlocks has n blocks, in chains as deep as fits below an IPv6 /32, of many policies. Every
// block takes the next one out again, which has another port.
func nestedBlocks(n int) Input {
	var in Input
	for i := range n {
		if i%100 == 0 {
			in.Policies = append(in.Policies, Policy{
				Ref: PolicyRef{"NetworkPolicy", "t1", fmt.Sprint("p", i/100%20)}, Isolates: [2]bool{true, true},
			})
		}
		p := &in.Policies[len(in.Policies)-1]
		chain, bits := i/96, 32+i%96
		a := netip.AddrFrom16([16]byte{0xfd, byte(chain >> 16), byte(chain >> 8), byte(chain)})
		port := uint16(80 + i%3)
		p.Rules[Ingress] = append(p.Rules[Ingress], Rule{
			Peer: Peer{
				Block:  netip.PrefixFrom(a, bits),
				Except: []netip.Prefix{netip.PrefixFrom(a, bits+1)},
			},
			Ports: []Ports{{TCP, port, port}},
		})
	}
	return in
}

// manyExcepts is one rule for everything but n hosts.
func manyExcepts(n int) Input {
	r := Rule{Peer: Peer{Block: netip.MustParsePrefix("0.0.0.0/0")}, AllPorts: true}
	for i := range n {
		r.Peer.Except = append(r.Peer.Except, hostPrefix(i))
	}
	p := Policy{Ref: PolicyRef{"NetworkPolicy", "t1", "excepts"}, Isolates: [2]bool{true, true}}
	p.Rules[Egress] = []Rule{r}
	return Input{Policies: []Policy{p}}
}

// exceptEach is n policies that allow everything but one host each.
func exceptEach(n int) Input {
	var in Input
	for i := range n {
		p := Policy{Ref: PolicyRef{"NetworkPolicy", "t1", fmt.Sprint("p", i)}, Isolates: [2]bool{true, true}}
		p.Rules[Egress] = []Rule{{
			Peer:  Peer{Block: netip.MustParsePrefix("0.0.0.0/0"), Except: []netip.Prefix{hostPrefix(i)}},
			Ports: []Ports{{TCP, 443, 443}},
		}}
		in.Policies = append(in.Policies, p)
	}
	return in
}

// oneBlock is n rules on the same block, each with a port of its own.
func oneBlock(n int) Input {
	p := Policy{Ref: PolicyRef{"NetworkPolicy", "t1", "block"}, Isolates: [2]bool{true, true}}
	for i := range n {
		p.Rules[Egress] = append(p.Rules[Egress], Rule{
			Peer:  Peer{Block: netip.MustParsePrefix("10.0.0.0/8")},
			Ports: []Ports{{TCP, uint16(2 * i), uint16(2 * i)}},
		})
	}
	return Input{Policies: []Policy{p}}
}

func BenchmarkCompile(b *testing.B) {
	for _, c := range []struct {
		name string
		in   Input
	}{
		{"1k peers", manyPeers(1000)},
		{"10k peers", manyPeers(10_000)},
		{"100k peers", manyPeers(100_000)},
		{"10k nested", nestedBlocks(10_000)},
		{"100k nested", nestedBlocks(100_000)},
		{"10k excepts", manyExcepts(10_000)},
		{"100k excepts", manyExcepts(100_000)},
		{"10k policies with an except each", exceptEach(10_000)},
		{"30k rules on one block", oneBlock(30_000)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var r *Rules
			for b.Loop() {
				r = Compile(c.in)
			}
			b.ReportMetric(float64(len(r.Entries[Ingress])+len(r.Entries[Egress])), "entries")
		})
	}
}

// BenchmarkEdit compiles 100k peers, then again with one peer more, and counts the entries that
// differ: what a writer that diffs has to write.
func BenchmarkEdit(b *testing.B) {
	in := manyPeers(100_000)
	old := Compile(in)
	in.Policies[0].Rules[Egress] = append(in.Policies[0].Rules[Egress], Rule{
		Peer: Peer{Block: netip.MustParsePrefix("172.16.0.1/32")}, Ports: []Ports{{TCP, 443, 443}},
	})
	var changed int
	for b.Loop() {
		changed = differing(old, Compile(in), Egress)
	}
	b.ReportMetric(float64(changed), "changed")
}

func BenchmarkHash(b *testing.B) {
	r := Compile(manyPeers(100_000))
	for b.Loop() {
		r.Hash()
	}
}

func BenchmarkLookup(b *testing.B) {
	r := Compile(manyPeers(100_000))
	a := netip.MustParseAddr("10.1.2.3")
	for b.Loop() {
		r.Lookup(Egress, a, TCP, 443)
	}
}
