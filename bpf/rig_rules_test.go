package bpf_test

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
)

// rule is what one prefix says.
type rule struct {
	prefix string
	ports  []bpf.Breakpoint // the first starts at 0
}

const (
	allowed = bpf.ResAllow | 0x1001 // with the ids of some rules
	allow2  = bpf.ResAllow | 0x1003
	denied  = 0x1002
)

func allPorts(prefix string) rule  { return rule{prefix, []bpf.Breakpoint{{Result: allowed}}} }
func denyAll(prefix string) rule   { return rule{prefix, []bpf.Breakpoint{{Result: denied}}} }
func key(proto, port int) uint32   { return uint32(proto)<<16 | uint32(port) }
func from(start, res uint32) point { return point{Start: start, Result: res} }

type point = bpf.Breakpoint

func portRange(prefix string, proto, first, last int) rule {
	return rule{prefix, ranges(proto, first, last)}
}

// ranges allows ranges of ports, given as first and last, that do not touch.
func ranges(proto int, firstLast ...int) []point {
	b := []point{from(0, denied)}
	for i := 0; i < len(firstLast); i += 2 {
		b = append(b, from(key(proto, firstLast[i]), allowed), from(key(proto, firstLast[i+1])+1, denied))
	}
	return b
}

type policy struct {
	rules     [2][]rule // by direction
	onMiss    [2]uint32
	forceTrie bool
	slot      int // 0 = slotID
}

var dirNames = [2]string{"in", "out"}

// load writes the rules of the slot and gives it a new generation.
func (r *rig) load(p policy) {
	r.Helper()
	if p.slot == 0 {
		p.slot = slotID
	}
	s := r.slots.At(p.slot)
	r.node().NextGeneration++
	*s = bpf.Slot{
		Generation: r.node().NextGeneration, Flags: bpf.SlotUsed | bpf.SlotComplete,
		OnMiss: p.onMiss, ChangedAt: bpf.Now(),
	}
	var blocks []bpf.PortBlock
	for dir, rules := range p.rules {
		for fam := range 2 {
			blocks = r.loadFamily(s, p, dir, fam, rules, blocks)
		}
	}
	if len(blocks) > 0 {
		m, err := bpf.NewInnerPortset("t_ports", uint32(len(blocks)))
		r.must(err)
		defer m.Close()
		for i := range blocks {
			r.must(m.Put(uint32(i), &blocks[i]))
		}
		r.must(r.Maps["portsets"].Put(uint32(p.slot), m))
	}
}

func (r *rig) loadFamily(s *bpf.Slot, p policy, dir, fam int, rules []rule, blocks []bpf.PortBlock) []bpf.PortBlock {
	r.Helper()
	hash, trie := map[any]bpf.RuleVal{}, map[any]bpf.RuleVal{}
	host := []int{32, 128}[fam]
	var lens []int
	for _, ru := range rules {
		if pre := netip.MustParsePrefix(ru.prefix); pre.Addr().Is4() == (fam == bpf.V4) && !slices.Contains(lens, pre.Bits()) {
			lens = append(lens, pre.Bits())
		}
	}
	useTrie := p.forceTrie || len(lens) > bpf.MaxPrefixLens
	for _, ru := range rules {
		pre := netip.MustParsePrefix(ru.prefix)
		if pre.Addr().Is4() != (fam == bpf.V4) {
			continue
		}
		var k any = bpf.NewRuleKey4(pre.Masked())
		if fam == bpf.V6 {
			k = bpf.NewRuleKey6(pre)
		}
		var v bpf.RuleVal
		v, blocks = ruleVal(ru, blocks)
		if useTrie && pre.Bits() != host {
			trie[k] = v
		} else {
			hash[k] = v
		}
	}
	if useTrie {
		lens = slices.DeleteFunc(lens, func(l int) bool { return l != host })
	}
	slices.Sort(lens)
	slices.Reverse(lens)
	name := fmt.Sprintf("%s%d", dirNames[dir], []int{4, 6}[fam])
	if len(lens) > 0 {
		m, err := bpf.NewInnerRules("t_rules", fam, uint32(len(hash)))
		r.must(err)
		r.fill(m, hash, r.Maps["rules_"+name], p.slot)
		s.Lens[dir][fam] = bpf.LensWord(lens...)
	}
	if len(trie) > 0 {
		m, err := bpf.NewInnerTrie("t_trie", fam, uint32(len(trie)))
		r.must(err)
		r.fill(m, trie, r.Maps["trie_"+name], p.slot)
		s.Trie[dir][fam] = 1
	}
	return blocks
}

func (r *rig) fill(m *ebpf.Map, entries map[any]bpf.RuleVal, outer *ebpf.Map, slot int) {
	r.Helper()
	defer m.Close()
	for k, v := range entries {
		r.must(m.Put(k, v))
	}
	r.must(outer.Put(uint32(slot), m))
}

// ruleVal writes steps inline where they fit, and else as a set.
func ruleVal(ru rule, blocks []bpf.PortBlock) (bpf.RuleVal, []bpf.PortBlock) {
	b := ru.ports
	switch {
	case len(b) == 1:
		return bpf.RuleVal{A: 0, B: bpf.PortKeyMax, In: b[0].Result}, blocks
	case len(b) == 3 && b[0].Result == b[2].Result:
		return bpf.RuleVal{A: b[1].Start, B: b[2].Start - 1, In: b[1].Result, Out: b[0].Result}, blocks
	}
	v := bpf.RuleVal{A: uint32(len(blocks)), B: uint32(len(b)), In: bpf.ResSet}
	for i, p := range b {
		if i%bpf.BlockSize == 0 {
			var block bpf.PortBlock
			for j := range block.B {
				block.B[j].Start = 0xffffffff
			}
			blocks = append(blocks, block)
		}
		blocks[len(blocks)-1].B[i%bpf.BlockSize] = p
	}
	return v, blocks
}
