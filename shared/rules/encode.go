package rules

import (
	"net/netip"
	"slices"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// family indexes the per-family maps and words of a slot, as enum latch_family does.
type family int

const (
	v4 family = 0
	v6 family = 1
)

var families = [2]family{v4, v6}

func familyOf(p netip.Prefix) family {
	if p.Addr().Is4() {
		return v4
	}
	return v6
}

// hostBits is the prefix length of a single address.
func (f family) hostBits() int {
	if f == v4 {
		return 32
	}
	return 128
}

func encodeResult(r policy.Result) uint32 {
	v := uint32(r.Rule) & bpf.ResRuleMask
	if r.Verdict == policy.Allow {
		v |= bpf.ResAllow
	}
	return v
}

func decodeResult(v uint32) policy.Result {
	r := policy.Result{Rule: policy.RuleID(v & bpf.ResRuleMask)}
	if v&bpf.ResAllow != 0 {
		r.Verdict = policy.Allow
	}
	return r
}

// encodeInline turns ports into a rule value that needs no port set: one result for everything, or
// one range with another result on both sides of it. It reports false when a set is needed.
func encodeInline(ports []policy.Breakpoint) (bpf.RuleVal, bool) {
	switch {
	case len(ports) == 1:
		r := encodeResult(ports[0].Result)
		return bpf.RuleVal{A: 0, B: bpf.PortKeyMax, In: r, Out: r}, true
	case len(ports) == 2:
		return bpf.RuleVal{A: ports[1].Start, B: bpf.PortKeyMax,
			In: encodeResult(ports[1].Result), Out: encodeResult(ports[0].Result)}, true
	case len(ports) == 3 && ports[0].Result == ports[2].Result:
		return bpf.RuleVal{A: ports[1].Start, B: ports[2].Start - 1,
			In: encodeResult(ports[1].Result), Out: encodeResult(ports[0].Result)}, true
	}
	return bpf.RuleVal{}, false
}

// decodeInline is the reverse of encodeInline.
func decodeInline(v bpf.RuleVal) []policy.Breakpoint {
	in, out := decodeResult(v.In), decodeResult(v.Out)
	var ports []policy.Breakpoint
	if v.A > 0 {
		ports = append(ports, policy.Breakpoint{Start: 0, Result: out})
	}
	ports = append(ports, policy.Breakpoint{Start: v.A, Result: in})
	if v.B < bpf.PortKeyMax {
		ports = append(ports, policy.Breakpoint{Start: v.B + 1, Result: out})
	}
	return ports
}

// encodeSet lays out a port set in whole blocks; what is left of the last block can match nothing.
func encodeSet(ports []policy.Breakpoint) []bpf.PortBlock {
	blocks := make([]bpf.PortBlock, blocksOf(len(ports)))
	for i := range blocks {
		for j := range blocks[i].B {
			b := &blocks[i].B[j]
			if k := i*bpf.BlockSize + j; k < len(ports) {
				b.Start, b.Result = ports[k].Start, encodeResult(ports[k].Result)
			} else {
				b.Start = 0xffffffff
			}
		}
	}
	return blocks
}

func blocksOf(breakpoints int) uint32 {
	return uint32((breakpoints + bpf.BlockSize - 1) / bpf.BlockSize)
}

// compareEntries is the order of policy.Rules.Entries: IPv4 first, then address, then shorter.
func compareEntries(a, b policy.Entry) int { return comparePrefixes(a.Prefix, b.Prefix) }

func comparePrefixes(a, b netip.Prefix) int {
	if c := int(familyOf(a)) - int(familyOf(b)); c != 0 {
		return c
	}
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

// ofFamily returns the part of sorted entries that belongs to one family.
func ofFamily(entries []policy.Entry, f family) []policy.Entry {
	split, _ := slices.BinarySearchFunc(entries, v6, func(e policy.Entry, want family) int {
		return int(familyOf(e.Prefix)) - int(want)
	})
	if f == v4 {
		return entries[:split]
	}
	return entries[split:]
}
