package reconcile

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"testing"

	"github.com/latch-cni/latch/shared/policy"
)

// A large policy that is edited again and again is a new input each time.
func TestCompiledRulesAreBoundedBySize(t *testing.T) {
	const peers = 20_000
	p := policy.Policy{Isolates: [2]bool{policy.Egress: true}}
	for i := range peers {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 11<<24|uint32(i))
		p.Rules[policy.Egress] = append(p.Rules[policy.Egress], policy.Rule{
			Peer: policy.Peer{Block: netip.PrefixFrom(netip.AddrFrom4(b), 32)}, AllPorts: true,
		})
	}
	var c compiled
	for edit := range 100 {
		c.get(strconv.Itoa(edit), policy.Input{Policies: []policy.Policy{p}})
	}
	held := 0
	for _, rules := range []map[string]*policy.Rules{c.rules, c.old} {
		for _, r := range rules {
			held += weigh(r)
		}
	}
	if limit := 2 * (maxCompiled + 2*peers + 1); held > limit {
		t.Errorf("%d prefixes and breakpoints are held, want at most %d", held, limit)
	}
	if a, b := c.get("99", policy.Input{}), c.get("99", policy.Input{}); a != b || len(a.Entries[policy.Egress]) != peers {
		t.Error("the last rules were not held")
	}
}
