package rules

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
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

// Maps of a slot that is given back are kept for the rules that it is filled with next, as putting others in their
// place waits for readers of the kernel: those that are small, for rules that are not much smaller.
const (
	maxKept  = 1024 // elements that a kept map has room for
	maxEmpty = 64   // the same for one that the next rules have no use for
)

// Fill writes rules into a slot to which nothing is bound, and that no packet is at. Whatever the slot held is
// replaced; maps that Reset has left in it are used again. On error the slot holds nothing that may be used; the
// caller must not mark it complete. The slot's flags, generation and hash are the caller's to write.
func (t *Tables) Fill(slot uint32, rules *policy.Rules) (*Content, error) {
	t.hide(slot)
	w := &filling{t: t, slot: slot, sets: newSets()}
	defer w.close()
	for _, d := range policy.Directions {
		t.storeWord(slot, op{kind: opMiss, dir: d, miss: rules.OnMiss[d]})
		for _, f := range families {
			if err := w.family(d, f, ofFamily(rules.Entries[d], f)); err != nil {
				return nil, fmt.Errorf("fill slot %d: %w", slot, err)
			}
		}
	}
	m, err := w.mapFor(t.portsets, len(w.blocks), func() (*ebpf.Map, error) {
		return bpf.NewInnerPortset("latch_ports", withSpare(len(w.blocks), spareBlocks))
	})
	if err == nil && m != nil {
		err = writeBlocks(m, 0, w.blocks)
	}
	if err != nil {
		return nil, fmt.Errorf("fill slot %d: port sets: %w", slot, err)
	}
	return &Content{Rules: rules, shapes: shapesOf(rules), sets: w.sets}, together(w.waits)
}

// filling is a slot that rules are written into.
type filling struct {
	t      *Tables
	slot   uint32
	sets   *sets
	blocks []bpf.PortBlock // of the sets, in their order
	opened []*ebpf.Map
	waits  []func() error // what waits for readers
}

func (w *filling) close() {
	for _, m := range w.opened {
		_ = m.Close()
	}
}

// family fills the maps of one direction and family, and notes the port set blocks that its rules need.
func (w *filling) family(d policy.Direction, f family, entries []policy.Entry) error {
	sh := shapeOf(entries, f)
	var sizes [2]int
	for _, e := range entries {
		sizes[sh.of(e.Prefix, f)]++
	}
	for _, st := range []store{inHash, inTrie} {
		m, err := w.mapFor(w.t.outer[d][f][st], sizes[st], func() (*ebpf.Map, error) {
			return newInner(st, f, withSpare(sizes[st], spareEntries))
		})
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		blocks, err := load(m, f, ofStore(entries, sh, f, st), w.sets)
		if err != nil {
			return err
		}
		w.blocks = append(w.blocks, blocks...)
	}
	w.t.storeWord(w.slot, op{kind: opLens, dir: d, family: f, shape: sh})
	w.t.storeWord(w.slot, op{kind: opTrie, dir: d, family: f, shape: sh})
	return nil
}

// mapFor returns an empty inner map with room for n elements: the one that the slot has, or one that is made, and
// put into its place at the end. It returns nil if there are none.
func (w *filling) mapFor(outer *ebpf.Map, n int, create func() (*ebpf.Map, error)) (*ebpf.Map, error) {
	m, err := inner(outer, w.slot)
	if m != nil {
		w.opened = append(w.opened, m)
	}
	switch {
	case n == 0 && err == nil && (m == nil || m.MaxEntries() <= maxEmpty && isEmpty(m)):
		return nil, nil
	case n == 0:
		w.waits = append(w.waits, func() error { return clearInner(outer, w.slot) })
		return nil, nil
	case err == nil && m != nil && fits(m, n) && isEmpty(m):
		return m, nil
	}
	if m, err = create(); err != nil {
		return nil, err
	}
	w.opened = append(w.opened, m)
	w.waits = append(w.waits, func() error { return w.t.publish(outer, w.slot, m) })
	return m, nil
}

// fits tells whether a map that was made for other rules does for n elements, and those that come later, without
// being far too large.
func fits(m *ebpf.Map, n int) bool {
	room := m.MaxEntries()
	if m.Type() == ebpf.Array {
		return uint32(n) <= room && room <= 4*withSpare(n, spareBlocks)
	}
	return uint32(n+spareEntries/2) <= room && room <= 4*withSpare(n, spareEntries)
}

func isEmpty(m *ebpf.Map) bool {
	key, err := firstKey(m)
	return err == nil && key == nil
}

// firstKey returns a key that a look could find, nil if there is none. Port sets are found by rules alone.
func firstKey(m *ebpf.Map) ([]byte, error) {
	if m.Type() == ebpf.Array {
		return nil, nil
	}
	return m.NextKeyBytes(nil)
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

// Clear empties a slot to which nothing is bound. It waits for readers.
func (t *Tables) Clear(slot uint32) error {
	t.hide(slot)
	var calls []func() error
	for _, outer := range t.all() {
		calls = append(calls, func() error { return clearInner(outer, slot) })
	}
	return together(calls)
}

// Reset is Clear for a slot that no packet is at and that is filled again soon: it keeps small maps, empty, and does
// not wait for readers if there are no others.
func (t *Tables) Reset(slot uint32) error {
	t.hide(slot)
	var calls []func() error
	for _, outer := range t.all() {
		if !emptied(outer, slot) {
			calls = append(calls, func() error { return clearInner(outer, slot) })
		}
	}
	return together(calls)
}

// HasMaps tells whether a slot has inner maps.
func (t *Tables) HasMaps(slot uint32) bool {
	return slices.ContainsFunc(t.all(), func(outer *ebpf.Map) bool {
		var id uint32
		return outer.Lookup(slot, &id) == nil
	})
}

// emptied empties the inner map of a slot, and reports false when it is too large for that, or something fails.
func emptied(outer *ebpf.Map, slot uint32) bool {
	m, err := inner(outer, slot)
	if err != nil || m == nil {
		return err == nil
	}
	defer m.Close()
	if m.MaxEntries() > maxKept {
		return false
	}
	for range m.MaxEntries() + 1 {
		key, err := firstKey(m)
		if err != nil || key == nil {
			return err == nil
		}
		if m.Delete(key) != nil {
			return false
		}
	}
	return false
}

// all are the outer maps.
func (t *Tables) all() []*ebpf.Map {
	all := []*ebpf.Map{t.portsets}
	for _, d := range policy.Directions {
		for _, f := range families {
			all = append(all, t.outer[d][f][:]...)
		}
	}
	return all
}

// hide has looks at a slot find none of its rules.
func (t *Tables) hide(slot uint32) {
	h := t.slots.At(int(slot))
	for _, d := range policy.Directions {
		for _, f := range families {
			atomic.StoreUint32(&h.Lens[d][f], 0)
			atomic.StoreUint32(&h.Trie[d][f], 0)
		}
	}
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
