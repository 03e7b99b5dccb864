package policy

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// functions builds and interns port functions: what one set of active classes says for every
// protocol and port. Equal functions have one number and one slice.
type functions struct {
	rules *ruleset
	list  [][]Breakpoint
	index map[string]int32
	buf   []byte
	room  int // breakpoints that may still be made; below zero, what is made is not right any more
}

func newFunctions(rs *ruleset, room int) *functions {
	return &functions{rules: rs, index: make(map[string]int32), room: room}
}

// piece is a range of port keys of one class.
type piece struct {
	span
	class int32
}

// of returns the function of a set of classes.
func (f *functions) of(classes []int32) int32 {
	if f.room < 0 {
		return 0
	}
	var pieces []piece
	cuts := []uint32{0}
	for _, c := range classes {
		for _, s := range f.rules.classes[c].spans {
			pieces = append(pieces, piece{s, c})
			cuts = append(cuts, s.first)
			if s.last < lastPortKey {
				cuts = append(cuts, s.last+1)
			}
		}
	}
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Compare(a.first, b.first) })
	slices.Sort(cuts)
	return f.intern(f.sweep(pieces, slices.Compact(cuts)))
}

// sweep goes over the port keys at which anything changes. Per tier it keeps the active classes in
// a heap; one whose piece has ended is thrown out when it comes to the top.
func (f *functions) sweep(pieces []piece, cuts []uint32) []Breakpoint {
	var tiers [TierDefault]heap
	end := make(map[int32]uint32) // last key of the class's piece that was entered last
	var out []Breakpoint
	for _, cut := range cuts {
		for len(pieces) > 0 && pieces[0].first <= cut {
			p := pieces[0]
			pieces = pieces[1:]
			if _, queued := end[p.class]; !queued {
				tiers[f.rules.classes[p.class].source.Tier].push(p.class)
			}
			end[p.class] = p.last
		}
		var first [TierDefault]*class
		for t := range tiers {
			for len(tiers[t]) > 0 && first[t] == nil {
				top := tiers[t][0]
				if end[top] >= cut {
					first[t] = &f.rules.classes[top]
				} else {
					delete(end, tiers[t].pop())
				}
			}
		}
		r := f.rules.judge(first)
		if n := len(out); n == 0 || out[n-1].Result != r {
			out = append(out, Breakpoint{Start: cut, Result: r})
		}
	}
	return out
}

// judge is the order of the tiers, given the first matching class of each.
func (rs *ruleset) judge(first [TierDefault]*class) Result {
	if c := first[TierAdmin]; c != nil && c.source.Action != ActionPass {
		return c.result()
	}
	if rs.isolation != nil {
		if c := first[TierNetworkPolicy]; c != nil {
			return c.result()
		}
		return Result{Verdict: Deny, Rule: rs.isolation.ID}
	}
	if c := first[TierBaseline]; c != nil && c.source.Action != ActionPass {
		return c.result()
	}
	return Result{Verdict: rs.fallback}
}

func (c *class) result() Result {
	if c.source.Action == ActionAccept {
		return Result{Verdict: Allow, Rule: c.source.ID}
	}
	return Result{Verdict: Deny, Rule: c.source.ID}
}

func (f *functions) intern(ports []Breakpoint) int32 {
	f.buf = f.buf[:0]
	for _, p := range ports {
		f.buf = binary.BigEndian.AppendUint32(f.buf, p.Start)
		f.buf = binary.BigEndian.AppendUint32(f.buf, p.Result.word())
	}
	if n, ok := f.index[string(f.buf)]; ok {
		return n
	}
	n := int32(len(f.list))
	f.room -= len(ports)
	f.list = append(f.list, slices.Clip(ports))
	f.index[string(f.buf)] = n
	return n
}

// word packs a result into 32 bits, injectively.
func (r Result) word() uint32 { return uint32(r.Verdict)<<24 | uint32(r.Rule) }
