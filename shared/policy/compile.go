package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrTooBig says that the flattened policies of an identifier are larger than what was allowed.
var ErrTooBig = errors.New("policies are too big")

// Compile is CompileWithin without a bound.
func Compile(in Input) *Rules {
	out, err := CompileWithin(in, math.MaxInt)
	if err != nil {
		panic("compile without a bound: " + err.Error()) // cannot be
	}
	return out
}

// CompileWithin flattens the policies of an identifier. It is pure, and its result does not depend on
// the order of policies, rules, exceptions or ports; only Source.Rule does.
//
// Its cost is that of sorting all blocks and exceptions, plus the size of the distinct port
// functions: neither nested blocks nor many exceptions nor many policies on one block multiply it.
//
// Many rules with ports of their own on blocks inside each other do: each block inherits the ports
// of all around it. When the distinct port functions have more than so many breakpoints together it
// gives up with an error that wraps ErrTooBig, instead of using up memory that others need.
func CompileWithin(in Input, breakpoints int) (*Rules, error) {
	out := &Rules{}
	var sets [2]*ruleset
	ports := newPortLists()
	for _, d := range Directions {
		sets[d] = gather(&in, d, ports)
	}
	sources := sourcesOf(sets)
	assignIDs(sources)
	used := make(map[RuleID]struct{})
	for _, d := range Directions {
		fns := newFunctions(sets[d], breakpoints)
		out.OnMiss[d], out.Entries[d] = flatten(sets[d], fns)
		if fns.room < 0 {
			return nil, fmt.Errorf("%w: %s rules flatten to more than %d port intervals", ErrTooBig, d, breakpoints)
		}
		breakpoints = fns.room
		markUsed(used, out.OnMiss[d], fns)
	}
	for _, s := range sources {
		if _, ok := used[s.ID]; ok {
			out.Sources = append(out.Sources, *s)
		}
	}
	slices.SortFunc(out.Sources, func(a, b Source) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// sourcesOf lists the sources of both directions, in place.
func sourcesOf(sets [2]*ruleset) []*Source {
	var all []*Source
	for _, rs := range sets {
		if rs.isolation != nil {
			all = append(all, rs.isolation)
		}
		for i := range rs.classes {
			all = append(all, &rs.classes[i].source)
		}
	}
	return all
}

// flatten walks the blocks of one direction in order, which is the order of a tree walk, and makes
// an entry of each one that says something else than what is around it.
func flatten(rs *ruleset, fns *functions) (miss Result, entries []Entry) {
	w := newWalk(rs, fns)
	miss = fns.list[w.stack[0].function][0].Result
	entries = slices.Grow(entries, blocks(rs.events))
	for lo := 0; lo < len(rs.events); {
		hi := lo + 1
		for hi < len(rs.events) && rs.events[hi].block == rs.events[lo].block {
			hi++
		}
		b := rs.events[lo].block
		w.leaveUntil(b)
		around := w.top().function
		if fn := w.enter(b, rs.events[lo:hi]); fn != around {
			entries = append(entries, Entry{Prefix: b.prefix(), Ports: fns.list[fn]})
		}
		lo = hi
	}
	if len(entries) < cap(entries)*7/8 {
		entries = append([]Entry(nil), entries...) // it is kept for long
	}
	return miss, entries
}

// blocks counts the blocks of sorted events.
func blocks(events []event) (n int) {
	for i := range events {
		if i == 0 || events[i].block != events[i-1].block {
			n++
		}
	}
	return n
}
