package rules

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// Room that a fresh map gets on top of what it holds, so that edits fit without a new slot: another one
// waits for readers three times. New entries come before old ones go, so what is small has room for all of its
// entries to change at once.
const (
	spareEntries = 16  // at least; else an eighth
	spareAll     = 256 // up to so many as many again
	spareBlocks  = 4
)

func withSpare(n, spare int) uint32 { return uint32(n + max(spare, n/8, min(n, spareAll))) }

// Fill writes rules into a slot to which nothing is bound. Whatever the slot held is replaced. On
// error the slot holds nothing that may be used; the caller must not mark it complete. The slot's
// flags, generation and hash are the caller's to write.
func (t *Tables) Fill(slot uint32, rules *policy.Rules) (*Content, error) {
	if err := t.Clear(slot); err != nil {
		return nil, err
	}
	c := &Content{Rules: rules, shapes: shapesOf(rules), sets: newSets()}
	made := map[*ebpf.Map]*ebpf.Map{} // by the outer map that it is for
	defer func() {
		for _, m := range made {
			_ = m.Close()
		}
	}()
	var blocks []bpf.PortBlock
	for _, d := range policy.Directions {
		t.storeWord(slot, op{kind: opMiss, dir: d, miss: rules.OnMiss[d]})
		for _, f := range families {
			more, err := t.fillFamily(slot, d, f, ofFamily(rules.Entries[d], f), c.sets, made)
			if err != nil {
				return nil, fmt.Errorf("fill slot %d: %w", slot, err)
			}
			blocks = append(blocks, more...)
		}
	}
	if len(blocks) > 0 {
		m, err := bpf.NewInnerPortset("latch_ports", withSpare(len(blocks), spareBlocks))
		if err != nil {
			return nil, fmt.Errorf("create port sets of slot %d: %w", slot, err)
		}
		made[t.portsets] = m
		if err := writeBlocks(m, 0, blocks); err != nil {
			return nil, err
		}
	}
	var publish []func() error
	for outer, m := range made {
		publish = append(publish, func() error { return t.publish(outer, slot, m) })
	}
	return c, together(publish)
}

// together makes calls at the same time, each of which waits for readers of the kernel: the waits are one.
func together(calls []func() error) error {
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() { errs[i] = call() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// fillFamily fills the maps of one direction and family, and returns the port set blocks that its rules need, in
// the order in which sets placed them.
func (t *Tables) fillFamily(slot uint32, d policy.Direction, f family, entries []policy.Entry, s *sets, made map[*ebpf.Map]*ebpf.Map) ([]bpf.PortBlock, error) {
	var blocks []bpf.PortBlock
	sh := shapeOf(entries, f)
	var sizes [2]int
	for _, e := range entries {
		sizes[sh.of(e.Prefix, f)]++
	}
	for _, st := range []store{inHash, inTrie} {
		if sizes[st] == 0 {
			continue
		}
		m, err := newInner(st, f, withSpare(sizes[st], spareEntries))
		if err != nil {
			return nil, err
		}
		made[t.outer[d][f][st]] = m
		more, err := load(m, f, ofStore(entries, sh, f, st), s)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, more...)
	}
	t.storeWord(slot, op{kind: opLens, dir: d, family: f, shape: sh})
	t.storeWord(slot, op{kind: opTrie, dir: d, family: f, shape: sh})
	return blocks, nil
}

// ofStore goes over the entries that a shape puts into one store.
func ofStore(entries []policy.Entry, sh shape, f family, st store) iter.Seq[policy.Entry] {
	return func(yield func(policy.Entry) bool) {
		for _, e := range entries {
			if sh.of(e.Prefix, f) == st && !yield(e) {
				return
			}
		}
	}
}

// Clear empties a slot to which nothing is bound.
func (t *Tables) Clear(slot uint32) error {
	h := t.slots.At(int(slot))
	calls := []func() error{func() error { return clearInner(t.portsets, slot) }}
	for _, d := range policy.Directions {
		for _, f := range families {
			atomic.StoreUint32(&h.Lens[d][f], 0)
			atomic.StoreUint32(&h.Trie[d][f], 0)
			for _, outer := range t.outer[d][f] {
				calls = append(calls, func() error { return clearInner(outer, slot) })
			}
		}
	}
	return together(calls)
}

func newInner(s store, f family, entries uint32) (*ebpf.Map, error) {
	if s == inTrie {
		return bpf.NewInnerTrie("latch_trie", int(f), entries)
	}
	return bpf.NewInnerRules("latch_rules", int(f), entries)
}

// publish puts an inner map into an outer one. The kernel waits for readers of what was there.
func (t *Tables) publish(outer *ebpf.Map, slot uint32, m *ebpf.Map) error {
	if err := outer.Put(slot, m); err != nil {
		return fmt.Errorf("publish inner map %d of %s: %w", slot, outer, err)
	}
	return nil
}

// batch is how many rules are written at once: more take more memory and no less time.
const batch = 4096

// load fills a fresh inner map, by batches where the kernel has them, and returns the port set blocks that
// the rules need.
func load(m *ebpf.Map, f family, entries iter.Seq[policy.Entry], s *sets) (blocks []bpf.PortBlock, err error) {
	if f == v4 {
		blocks, err = loadKeys(m, entries, s, bpf.NewRuleKey4)
	} else {
		blocks, err = loadKeys(m, entries, s, bpf.NewRuleKey6)
	}
	if err != nil {
		return nil, fmt.Errorf("fill %s: %w", m, err)
	}
	return blocks, nil
}

func loadKeys[K any](m *ebpf.Map, entries iter.Seq[policy.Entry], s *sets, key func(netip.Prefix) K) (blocks []bpf.PortBlock, err error) {
	var keys []K
	var values []bpf.RuleVal
	for e := range entries {
		v, more, err := s.value(e.Ports, 0)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, more...)
		keys, values = append(keys, key(e.Prefix)), append(values, v)
		if len(keys) == batch {
			if err := writeRules(m, keys, values); err != nil {
				return nil, err
			}
			keys, values = keys[:0], values[:0]
		}
	}
	return blocks, writeRules(m, keys, values)
}

func writeRules[K any](m *ebpf.Map, keys []K, values []bpf.RuleVal) error {
	if len(keys) == 0 {
		return nil
	}
	_, err := m.BatchUpdate(keys, values, nil)
	if !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	for i := range keys {
		if err := m.Put(keys[i], values[i]); err != nil {
			return err
		}
	}
	return nil
}
