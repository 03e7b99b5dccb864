package rules

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// sets places the port sets of one slot into its array of blocks. A set is immutable and shared by
// all rules of the slot with the same ports.
type sets struct {
	first map[string]uint32 // content -> first block
	used  []bool            // by block
}

func newSets() *sets { return &sets{first: map[string]uint32{}} }

func setKey(ports []policy.Breakpoint) string {
	b := make([]byte, 0, 8*len(ports))
	for _, p := range ports {
		b = binary.LittleEndian.AppendUint32(b, p.Start)
		b = binary.LittleEndian.AppendUint32(b, encodeResult(p.Result))
	}
	return string(b)
}

// mark notes that a set with these ports stands at a block.
func (s *sets) mark(ports []policy.Breakpoint, first uint32) {
	s.first[setKey(ports)] = first
	n := blocksOf(len(ports))
	s.grow(first + n)
	for i := first; i < first+n; i++ {
		s.used[i] = true
	}
}

func (s *sets) grow(n uint32) {
	if int(n) > len(s.used) {
		s.used = append(s.used, make([]bool, int(n)-len(s.used))...)
	}
}

// place finds room for a set of n blocks below capacity, or appends without a bound when capacity
// is 0. It reports false when there is no room.
func (s *sets) place(n, capacity uint32) (uint32, bool) {
	run := uint32(0)
	for i := range s.used {
		if s.used[i] {
			run = 0
			continue
		}
		if run++; run == n {
			return uint32(i) + 1 - n, true
		}
	}
	first := uint32(len(s.used)) - run
	return first, capacity == 0 || first+n <= capacity
}

// keep drops every set that entries no longer name: its blocks are free for the next update.
func (s *sets) keep(rules *policy.Rules) *sets {
	kept := newSets()
	kept.grow(uint32(len(s.used)))
	for _, d := range policy.Directions {
		for _, e := range rules.Entries[d] {
			if _, inline := encodeInline(e.Ports); inline {
				continue
			}
			if first, ok := s.first[setKey(e.Ports)]; ok {
				kept.mark(e.Ports, first)
			}
		}
	}
	return kept
}

// value encodes ports, placing them in the sets if they need one. New sets are returned as blocks to
// write at first; nil when nothing has to be written.
func (s *sets) value(ports []policy.Breakpoint, capacity uint32) (v bpf.RuleVal, blocks []bpf.PortBlock, err error) {
	if v, ok := encodeInline(ports); ok {
		return v, nil, nil
	}
	key := setKey(ports)
	first, known := s.first[key]
	if !known {
		n := blocksOf(len(ports))
		var ok bool
		if first, ok = s.place(n, capacity); !ok {
			return v, nil, errNoRoom
		}
		s.mark(ports, first)
		blocks = encodeSet(ports)
	}
	return bpf.RuleVal{A: first, B: uint32(len(ports)), In: bpf.ResSet}, blocks, nil
}

// writeBlocks writes consecutive blocks of a port set array.
func writeBlocks(m *ebpf.Map, first uint32, blocks []bpf.PortBlock) error {
	for i := range blocks {
		if err := m.Put(first+uint32(i), &blocks[i]); err != nil {
			return fmt.Errorf("write port set block %d: %w", first+uint32(i), err)
		}
	}
	return nil
}

// readSet reads a port set back.
func readSet(m *ebpf.Map, first, breakpoints uint32) ([]policy.Breakpoint, error) {
	if m == nil {
		return nil, fmt.Errorf("read port set at block %d: the slot has no port sets", first)
	}
	ports := make([]policy.Breakpoint, 0, breakpoints)
	for i := uint32(0); i < blocksOf(int(breakpoints)); i++ {
		var b bpf.PortBlock
		if err := m.Lookup(first+i, &b); err != nil {
			return nil, fmt.Errorf("read port set block %d: %w", first+i, err)
		}
		for _, p := range b.B {
			if uint32(len(ports)) == breakpoints {
				break
			}
			ports = append(ports, policy.Breakpoint{Start: p.Start, Result: decodeResult(p.Result)})
		}
	}
	return ports, nil
}
