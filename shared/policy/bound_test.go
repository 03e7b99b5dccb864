package policy

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

// Blocks inside each other, each with ports of its own, inherit the ports of all around them: the
// flattened form grows with the product. The compiler gives up in time.
func TestCompileWithinGivesUp(t *testing.T) {
	p := Policy{Ref: PolicyRef{"NetworkPolicy", "t1", "p"}, Isolates: [2]bool{true, true}}
	const n = 4000
	for i := range n {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		p.Rules[Egress] = append(p.Rules[Egress],
			Rule{Peer: Peer{Block: block}, Ports: []Ports{{UDP, uint16(i), uint16(i)}}},
			Rule{Peer: Peer{Block: netip.MustParsePrefix("10.0.0.0/8")}, Ports: []Ports{{TCP, uint16(2 * i), uint16(2 * i)}}})
	}
	in := Input{Policies: []Policy{p}}
	start := time.Now()
	if _, err := CompileWithin(in, 1_000_000); !errors.Is(err, ErrTooBig) {
		t.Fatalf("got %v, want ErrTooBig", err)
	}
	t.Logf("gave up after %v", time.Since(start))
	p.Rules[Egress] = p.Rules[Egress][:200]
	in = Input{Policies: []Policy{p}}
	bounded, err := CompileWithin(in, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	if bounded.Hash() != Compile(in).Hash() {
		t.Error("a bound that is not met changes the rules")
	}
}
