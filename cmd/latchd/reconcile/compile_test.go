package reconcile

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
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
		if _, err := c.get(strconv.Itoa(edit), policy.Input{Policies: []policy.Policy{p}}); err != nil {
			t.Fatal(err)
		}
	}
	held := 0
	for _, r := range c.rules {
		held += weigh(r)
	}
	if limit := maxCompiled + 2*peers + 1; held > limit {
		t.Errorf("%d prefixes and breakpoints are held, want at most %d", held, limit)
	}
	a, errA := c.get("99", policy.Input{})
	b, errB := c.get("99", policy.Input{})
	if errA != nil || errB != nil || a != b || len(a.Entries[policy.Egress]) != peers {
		t.Error("the last rules were not held")
	}
}

// Rules that are not of the last generation are found as long as somebody else holds them, and only then.
func TestCompiledRulesThatAreInUseAreFound(t *testing.T) {
	var c compiled
	get := func(key string) *policy.Rules {
		r, err := c.get(key, policy.Input{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	used := get("used")
	get("dropped")
	c.weight = maxCompiled
	get("next")
	runtime.GC()
	if r := get("used"); r != used {
		t.Error("rules in use were compiled again")
	}
	if r := c.old["dropped"].Value(); r != nil {
		t.Error("rules that nobody uses are held")
	}
	runtime.KeepAlive(used)
}

// What would use up the memory of the node is refused by the name of the policy, and not held.
func TestPoliciesThatMultiplyAreRefused(t *testing.T) {
	p := policy.Policy{Ref: policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "shop", Name: "bomb"}, Isolates: [2]bool{policy.Egress: true}}
	for i := range 4000 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		p.Rules[policy.Egress] = append(p.Rules[policy.Egress],
			policy.Rule{Peer: policy.Peer{Block: block}, Ports: []policy.Ports{{Protocol: policy.UDP, First: uint16(i), Last: uint16(i)}}},
			policy.Rule{Peer: policy.Peer{Block: netip.MustParsePrefix("10.0.0.0/8")}, Ports: []policy.Ports{{Protocol: policy.TCP, First: uint16(2 * i), Last: uint16(2 * i)}}})
	}
	var c compiled
	_, err := c.get("1", policy.Input{Policies: []policy.Policy{p}})
	if !errors.Is(err, policy.ErrTooBig) || !strings.Contains(err.Error(), "shop/bomb") {
		t.Errorf("got error %v, want ErrTooBig with the policy's name", err)
	}
}
