package rules

import (
	"net/netip"
	"slices"

	"github.com/latch-cni/latch/shared/policy"
)

// film is a slot before the first write of an update and after each of them.
type film []*model

func newFilm(old *policy.Rules, ops []op) film {
	film := film{newModel(old)}
	for _, o := range ops {
		next := film[len(film)-1].clone()
		next.do(o)
		film = append(film, next)
	}
	return film
}

// look returns every answer that a packet can get whose reads are spread over the writes: after each read any
// number of writes may come. A nil answer is the result of a miss, in misses. Who is still looking earlier can do all
// that others can do later, so only the earliest moment counts.
func (f film) look(d policy.Direction, a netip.Addr) (found [][]policy.Breakpoint, misses []policy.Result) {
	fam := familyOf(netip.PrefixFrom(a, 0))
	for begin := range f { // when the present prefix lengths are read
		at := begin
		for _, l := range f[begin].shapes[d][fam].lens {
			p := netip.PrefixFrom(a, l).Masked()
			hits, missed := f.probe(at, d, fam, p)
			found = append(found, hits...)
			if at = missed; at == len(f) {
				break
			}
		}
		for t := at; t < len(f); t++ { // when the trie word is read
			if f[t].shapes[d][fam].trie {
				hits, from := f.walk(t, d, fam, a)
				found = append(found, hits...)
				misses = append(misses, f.misses(from, d)...)
			} else {
				misses = append(misses, f.misses(t, d)...)
			}
		}
	}
	return found, misses
}

// probe looks a prefix up in the hash at a moment or later: what may be found, and when it may be missed first.
func (f film) probe(from int, d policy.Direction, fam family, p netip.Prefix) (hits [][]policy.Breakpoint, missed int) {
	missed = len(f)
	var before []policy.Breakpoint
	for t := from; t < len(f); t++ {
		ports, ok := f[t].maps[d][fam][inHash][p]
		replaced := ok && before != nil && !slices.Equal(ports, before)
		if ok {
			hits = append(hits, ports)
		}
		if !ok || replaced { // a look that is past the front of the chain finds neither
			missed = min(missed, t)
		}
		before = ports
	}
	return hits, missed
}

// walk goes through the trie from a moment on, from short prefixes to long ones, and remembers the last one that it met.
func (f film) walk(from int, d policy.Direction, fam family, a netip.Addr) (hits [][]policy.Breakpoint, missed int) {
	type state struct {
		ports []policy.Breakpoint // met last; nil: none
		at    int
	}
	states := []state{{nil, from}}
	for l := 0; l <= fam.hostBits(); l++ {
		p := netip.PrefixFrom(a, l).Masked()
		var next []state
		for _, s := range states {
			var met []policy.Breakpoint
			passed := false
			for t := s.at; t < len(f); t++ {
				ports, ok := f[t].maps[d][fam][inTrie][p]
				if !ok && !passed {
					next, passed = append(next, state{s.ports, t}), true
				}
				if ok && !slices.Equal(ports, met) {
					next, met = append(next, state{ports, t}), ports
				}
			}
		}
		states = next
	}
	missed = len(f)
	for _, s := range states {
		if s.ports == nil {
			missed = min(missed, s.at)
		} else {
			hits = append(hits, s.ports)
		}
	}
	return hits, missed
}

func (f film) misses(from int, d policy.Direction) (all []policy.Result) {
	for _, m := range f[from:] {
		all = append(all, m.miss[d])
	}
	return all
}

// mayOpen tells whether is_open of the programs, which reads six words of a slot in an order that the compiler
// chooses, may come to yes.
func (f film) mayOpen() bool {
	for _, d := range policy.Directions {
		if !slices.ContainsFunc(f, func(m *model) bool { return m.miss[d].Verdict == policy.Allow }) {
			return false
		}
		for _, fam := range families {
			if !slices.ContainsFunc(f, func(m *model) bool { return m.shapes[d][fam].empty() }) {
				return false
			}
		}
	}
	return true
}

func (m *model) clone() *model {
	c := &model{shapes: m.shapes, miss: m.miss}
	for _, d := range policy.Directions {
		for _, f := range families {
			for _, st := range []store{inHash, inTrie} {
				c.maps[d][f][st] = map[netip.Prefix][]policy.Breakpoint{}
				for p, ports := range m.maps[d][f][st] {
					c.maps[d][f][st][p] = ports
				}
			}
		}
	}
	return c
}
