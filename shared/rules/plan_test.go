package rules

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/policy"
)

var seed = flag.Uint64("seed", 1, "seed of the random cases")

// model is a slot as the programs see it.
type model struct {
	shapes shapes
	maps   [2][2][2]map[netip.Prefix][]policy.Breakpoint
	miss   [2]policy.Result
}

func newModel(r *policy.Rules) *model {
	m := &model{shapes: shapesOf(r), miss: r.OnMiss}
	for _, d := range policy.Directions {
		for _, f := range families {
			for _, st := range []store{inHash, inTrie} {
				m.maps[d][f][st] = map[netip.Prefix][]policy.Breakpoint{}
			}
		}
		for _, e := range r.Entries[d] {
			f := familyOf(e.Prefix)
			m.maps[d][f][m.shapes[d][f].of(e.Prefix, f)][e.Prefix] = e.Ports
		}
	}
	return m
}

func (m *model) do(o op) {
	switch o.kind {
	case opLens:
		m.shapes[o.dir][o.family].lens = shapeOfWords(o.shape.word(), 0).lens
	case opTrie:
		m.shapes[o.dir][o.family].trie = o.shape.trie
	case opMiss:
		m.miss[o.dir] = o.miss
	case opPut:
		m.maps[o.dir][o.family][o.store][o.entry.Prefix] = o.entry.Ports
	case opDelete:
		delete(m.maps[o.dir][o.family][o.store], o.entry.Prefix)
	}
}

// lookup is what the programs do: probe the present lengths longest first, then ask the trie.
func (m *model) lookup(d policy.Direction, a netip.Addr, key uint32) policy.Result {
	f := familyOf(netip.PrefixFrom(a, 0))
	s := m.shapes[d][f]
	for _, l := range s.lens {
		if ports, ok := m.maps[d][f][inHash][netip.PrefixFrom(a, l).Masked()]; ok {
			return at(ports, key)
		}
	}
	if s.trie {
		for l := f.hostBits(); l >= 0; l-- {
			if ports, ok := m.maps[d][f][inTrie][netip.PrefixFrom(a, l).Masked()]; ok {
				return at(ports, key)
			}
		}
	}
	return m.miss[d]
}

func at(ports []policy.Breakpoint, key uint32) policy.Result {
	i, found := slices.BinarySearchFunc(ports, key, func(b policy.Breakpoint, k uint32) int { return int(b.Start) - int(k) })
	if !found {
		i--
	}
	return ports[i].Result
}

var keys = []uint32{0, policy.PortKey(policy.TCP, 80), policy.PortKey(policy.TCP, 443), policy.PortKey(policy.UDP, 53)}

// randomRules draws rules over a handful of addresses, so that prefixes nest and collide.
func randomRules(r *rand.Rand) *policy.Rules {
	rules := &policy.Rules{}
	for _, d := range policy.Directions {
		rules.OnMiss[d] = policy.Result{Verdict: policy.Verdict(r.IntN(2)), Rule: policy.RuleID(r.IntN(3))}
		seen := map[netip.Prefix]bool{}
		for range r.IntN(12) {
			base, bits := netip.MustParseAddr("10.0.0.0").As4(), []int{0, 8, 24, 27, 28, 29, 30, 31, 32}
			base[3] = byte(r.IntN(32))
			p := netip.PrefixFrom(netip.AddrFrom4(base), bits[r.IntN(len(bits))]).Masked()
			if r.IntN(3) == 0 {
				b16 := netip.MustParseAddr("fd00::").As16()
				b16[15] = byte(r.IntN(8))
				bits := []int{0, 64, 125, 126, 127, 128}
				p = netip.PrefixFrom(netip.AddrFrom16(b16), bits[r.IntN(len(bits))]).Masked()
			}
			if seen[p] {
				continue
			}
			seen[p] = true
			rules.Entries[d] = append(rules.Entries[d], policy.Entry{Prefix: p, Ports: randomPorts(r)})
		}
		slices.SortFunc(rules.Entries[d], compareEntries)
	}
	return rules
}

func randomPorts(r *rand.Rand) []policy.Breakpoint {
	starts := []uint32{0}
	for range r.IntN(4) {
		starts = append(starts, keys[r.IntN(len(keys))]+uint32(r.IntN(2)))
	}
	slices.Sort(starts)
	var ports []policy.Breakpoint
	for _, s := range slices.Compact(starts) {
		res := policy.Result{Verdict: policy.Verdict(r.IntN(2)), Rule: policy.RuleID(300 + r.IntN(3))}
		if len(ports) == 0 || ports[len(ports)-1].Result != res {
			ports = append(ports, policy.Breakpoint{Start: s, Result: res})
		}
	}
	return ports
}

func probes() []netip.Addr {
	var all []netip.Addr
	for i := range 34 {
		all = append(all, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	for i := range 9 {
		a := netip.MustParseAddr("fd00::").As16()
		a[15] = byte(i)
		all = append(all, netip.AddrFrom16(a))
	}
	return append(all, netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("fd01::1"))
}

// Whatever writes come in between the reads of a packet, it gets the old or the new verdict.
func TestPlanNeverShowsAThirdVerdict(t *testing.T) {
	rounds, planned := 2000, 0
	for round := range rounds {
		if checkPlan(t, rand.New(rand.NewPCG(*seed, uint64(round))), round%8 != 0) {
			planned++
		}
		if t.Failed() {
			t.Fatalf("seed %d round %d", *seed, round)
		}
	}
	if planned < rounds/4 {
		t.Fatalf("only %d of %d updates could be made in place", planned, rounds)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add(uint64(1), uint64(2), true)
	f.Add(uint64(3), uint64(4), false)
	f.Fuzz(func(t *testing.T, seed1, seed2 uint64, small bool) {
		checkPlan(t, rand.New(rand.NewPCG(seed1, seed2)), small)
	})
}

// checkPlan draws an update and takes every look that its writes can come in between of. It reports false when
// the update cannot be made in place.
func checkPlan(t *testing.T, r *rand.Rand, small bool) bool {
	t.Helper()
	old, next := randomRules(r), randomRules(r)
	if small { // an edit, rather than something else altogether
		next = edit(r, old)
	}
	ops, ok := plan(old, shapesOf(old), next, math.MaxInt)
	if !ok || !whole(old, next, ops) {
		return false
	}
	if i := slices.IndexFunc(ops, func(o op) bool { return o.kind == opDelete }); i >= 0 && slices.ContainsFunc(ops[i:], func(o op) bool { return o.kind == opPut }) {
		t.Errorf("what comes may get the memory of what goes: %s", describe(ops))
	}
	film, before, done := newFilm(old, ops), newModel(old), newModel(next)
	for _, d := range policy.Directions {
		for _, a := range probes() {
			found, misses := film.look(d, a)
			for _, key := range keys {
				was, will, got := before.lookup(d, a, key), done.lookup(d, a, key), misses
				for _, ports := range found {
					got = append(slices.Clip(got), at(ports, key))
				}
				for _, g := range got {
					if g != was && g != will {
						t.Errorf("%v %s %#x: may get %v, old %v, new %v\nold %v\nnew %v\nops %s", d, a, key, g, was, will, old, next, describe(ops))
						return true
					}
				}
			}
		}
	}
	if film.mayOpen() && !film[:1].mayOpen() && !film[len(film)-1:].mayOpen() {
		t.Errorf("the slot may seem open\nold %v\nnew %v\nops %s", old, next, describe(ops))
	}
	if again, ok := plan(next, film[len(film)-1].shapes, next, math.MaxInt); !ok || len(again) != 0 {
		t.Errorf("the update does not end where a fresh fill would: %s", describe(again))
	}
	return true
}

// edit makes a few changes, most of which come or go.
func edit(r *rand.Rand, old *policy.Rules) *policy.Rules {
	next, other := &policy.Rules{OnMiss: old.OnMiss}, randomRules(r)
	for _, d := range policy.Directions {
		next.Entries[d] = slices.Clone(old.Entries[d])
	}
	for range 1 + r.IntN(4) {
		d := policy.Directions[r.IntN(2)]
		entries, n := &next.Entries[d], len(next.Entries[d])
		switch kind := r.IntN(16); {
		case kind == 0:
			next.OnMiss[d] = other.OnMiss[d]
		case kind == 1 && n > 0:
			(*entries)[r.IntN(n)].Ports = randomPorts(r)
		case kind < 8 && n > 0:
			i := r.IntN(n)
			*entries = slices.Delete(*entries, i, i+1)
		case len(other.Entries[d]) > 0:
			e := other.Entries[d][r.IntN(len(other.Entries[d]))]
			if i, found := slices.BinarySearchFunc(*entries, e, compareEntries); !found {
				*entries = slices.Insert(*entries, i, e)
			}
		}
	}
	return next
}

func describe(ops []op) string {
	s := ""
	for _, o := range ops {
		s += fmt.Sprintf("\n  %d dir %d family %d store %d %v %v", o.kind, o.dir, o.family, o.store, o.entry.Prefix, o.shape)
	}
	return s
}

// Peers come and go without another slot, whatever prefixes they lie in; what is nested with another change, or has
// other ports, needs one.
func TestWhatChangesInPlace(t *testing.T) {
	rules := func(miss policy.Verdict, peers ...string) *policy.Rules {
		r := &policy.Rules{OnMiss: [2]policy.Result{{Verdict: miss}, {Verdict: miss}}}
		for _, peer := range peers {
			id := policy.RuleID(300)
			prefix, other := strings.CutSuffix(peer, " other")
			if other {
				id++
			}
			ports := []policy.Breakpoint{{Result: policy.Result{Verdict: policy.Allow, Rule: id}}}
			r.Entries[policy.Egress] = append(r.Entries[policy.Egress], policy.Entry{Prefix: netip.MustParsePrefix(prefix), Ports: ports})
		}
		slices.SortFunc(r.Entries[policy.Egress], compareEntries)
		return r
	}
	base := []string{"0.0.0.0/0", "10.0.0.0/24", "10.0.0.1/32", "::/0", "fd00::1/128"}
	with := func(more ...string) []string { return slices.Concat(base, more) }
	for _, tt := range []struct {
		name      string
		old, next *policy.Rules
		want      bool
	}{
		{"nothing", rules(policy.Deny, base...), rules(policy.Deny, base...), true},
		{"a peer comes", rules(policy.Deny, base...), rules(policy.Deny, with("10.0.0.2/32")...), true},
		{"a peer goes", rules(policy.Deny, with("10.0.0.2/32")...), rules(policy.Deny, base...), true},
		{"peers come and go", rules(policy.Deny, with("10.0.0.2/32", "fd00::2/128")...), rules(policy.Deny, with("10.0.0.3/32", "10.2.0.0/24", "fd00::3/128")...), true},
		{"the first peer of a length", rules(policy.Deny, base...), rules(policy.Deny, with("10.9.0.0/16")...), true},
		{"the first peer", rules(policy.Deny), rules(policy.Deny, "10.0.0.1/32"), true},
		{"a default alone", rules(policy.Allow), rules(policy.Deny), true},
		{"a block with an exception", rules(policy.Deny, base...), rules(policy.Deny, with("10.9.0.0/24", "10.9.0.1/32")...), false},
		{"a block takes the place of its peers", rules(policy.Deny, base...), rules(policy.Deny, "0.0.0.0/0", "10.0.0.0/24", "10.0.0.0/30", "::/0", "fd00::1/128"), false},
		{"a block and its peers go", rules(policy.Deny, base...), rules(policy.Deny, "0.0.0.0/0", "::/0", "fd00::1/128"), false},
		{"other ports", rules(policy.Deny, base...), rules(policy.Deny, "0.0.0.0/0", "10.0.0.0/24", "10.0.0.1/32 other", "::/0", "fd00::1/128"), false},
		{"a default and a peer", rules(policy.Allow), rules(policy.Deny, "fd00::1/128"), false},
		{"the last peer and the default for others", rules(policy.Allow, "10.0.0.1/32"), rules(policy.Deny), false},
		{"all peers of the other family", rules(policy.Allow, "10.0.0.1/32"), rules(policy.Allow, "fd00::1/128"), false},
	} {
		ops, ok := plan(tt.old, shapesOf(tt.old), tt.next, math.MaxInt)
		if got := ok && whole(tt.old, tt.next, ops); got != tt.want {
			t.Errorf("%s: in place %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestPlanIsSmallForAnEditOfOnePeer(t *testing.T) {
	old := manyPeers(100_000)
	next := &policy.Rules{OnMiss: old.OnMiss}
	next.Entries[policy.Ingress] = slices.Delete(slices.Clone(old.Entries[policy.Ingress]), 5000, 5001)
	ops, ok := plan(old, shapesOf(old), next, math.MaxInt)
	if !ok || len(ops) != 1 || ops[0].kind != opDelete {
		t.Fatalf("got %v writes, want one delete", len(ops))
	}
}

// A change that is too large for a slot is given up at once: its writes would take more memory than the rules.
func TestPlanStopsAtTheLimit(t *testing.T) {
	old := manyPeers(100_000)
	next := &policy.Rules{OnMiss: old.OnMiss}
	next.Entries[policy.Egress] = old.Entries[policy.Ingress]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok := plan(old, shapesOf(old), next, maxWrites)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; ok || took > 4<<20 {
		t.Errorf("planned: %v, with %d bytes", ok, took)
	}
	next.Entries = [2][]policy.Entry{slices.Delete(slices.Clone(old.Entries[policy.Ingress]), 5000, 5002)}
	for limit := range 4 {
		if ops, ok := plan(old, shapesOf(old), next, limit); ok != (limit >= 2) || ok && len(ops) != 2 {
			t.Errorf("limit %d: %d writes, %v", limit, len(ops), ok)
		}
	}
}

func manyPeers(n int) *policy.Rules {
	r := &policy.Rules{}
	ports := []policy.Breakpoint{{Start: 0, Result: policy.Result{Verdict: policy.Allow, Rule: 300}}}
	for i := range n {
		a := netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)})
		r.Entries[policy.Ingress] = append(r.Entries[policy.Ingress], policy.Entry{Prefix: netip.PrefixFrom(a, 32), Ports: ports})
	}
	return r
}

func TestEncodeInlineAndBack(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 1))
	for range 2000 {
		ports := randomPorts(r)
		v, ok := encodeInline(ports)
		if !ok {
			continue
		}
		if got := decodeInline(v); !slices.Equal(got, ports) {
			t.Fatalf("encode %v: read back as %v", ports, got)
		}
	}
}
