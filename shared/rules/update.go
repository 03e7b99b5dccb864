package rules

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// ErrRebuild says that a change cannot be made inside the slot: it is too large, does not fit into the slot's maps,
// needs another way of looking up, or a packet could be judged by a mixture of old and new rules. Nothing was
// written. The caller fills a spare slot and moves the pods to it.
var ErrRebuild = errors.New("change needs another slot")

var errNoRoom = fmt.Errorf("%w: no room for port sets", ErrRebuild)

// maxWrites is the largest change that is made in place: one write costs about 2 us, filling a
// fresh map by batches about 0.1 us an entry.
const maxWrites = 2048

// Update is a change of a live slot that has been planned and found to fit.
type Update struct {
	t    *Tables
	slot uint32
	old  *Content
	next *Content
	ops  []op
	maps innerMaps

	blocks []setBlocks
	values map[*policy.Breakpoint]bpf.RuleVal

	failAt int // tests: the write that fails, counted from 1
}

// errInjected is what a write fails with that a test has chosen.
var errInjected = errors.New("injected failure")

type setBlocks struct {
	first  uint32
	blocks []bpf.PortBlock
}

// PlanUpdate prepares the change of a live slot from content old, which must be what the kernel
// holds, to rules next. It writes nothing that packets can see. It returns ErrRebuild when the
// change has to be made in another slot. Close the update when done.
func (t *Tables) PlanUpdate(slot uint32, old *Content, next *policy.Rules) (*Update, error) {
	ops, ok := plan(old.Rules, old.shapes, next, maxWrites)
	if !ok || !whole(old.Rules, next, ops) {
		return nil, ErrRebuild
	}
	return t.prepare(slot, old, next, ops)
}

func (t *Tables) prepare(slot uint32, old *Content, next *policy.Rules, ops []op) (*Update, error) {
	u := &Update{t: t, slot: slot, old: old, ops: ops,
		next:   &Content{Rules: next, shapes: shapesOf(next), sets: old.sets.keep(old.Rules)},
		values: map[*policy.Breakpoint]bpf.RuleVal{}}
	if err := u.open(); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// Frees tells whether the update leaves what a packet may still be looking at: elements of a preallocated hash and
// blocks of port sets, which the next write uses again at once, and rules that a look has seen a part of. The next
// update of the slot must not begin before all programs that run now have ended.
func (u *Update) Frees() bool { return len(u.ops) > 0 }

// open checks that everything fits and encodes the values.
func (u *Update) open() error {
	var grow [2][2][2]int
	var need [2][2][2]bool
	was := u.old.sizes()
	var capacity uint32
	for _, o := range u.ops {
		switch o.kind {
		case opLens:
			need[o.dir][o.family][inHash] = need[o.dir][o.family][inHash] || len(o.shape.lens) > 0
		case opTrie:
			need[o.dir][o.family][inTrie] = need[o.dir][o.family][inTrie] || o.shape.trie
		case opPut:
			grow[o.dir][o.family][o.store]++
			need[o.dir][o.family][o.store] = true
		case opDelete:
			need[o.dir][o.family][o.store] = true
		}
	}
	for _, d := range policy.Directions {
		for _, f := range families {
			for _, st := range []store{inHash, inTrie} {
				if !need[d][f][st] {
					continue
				}
				room := was[d][f][st] + grow[d][f][st]
				if err := u.maps.open(u.t, u.slot, d, f, st, room); err != nil {
					return err
				}
			}
		}
	}
	portset, err := inner(u.t.portsets, u.slot)
	if err != nil {
		return err
	}
	if portset != nil {
		u.maps.portset, capacity = portset, portset.MaxEntries()
	}
	return u.encode(capacity)
}

// encode gives every put its value and collects the new port sets.
func (u *Update) encode(capacity uint32) error {
	if capacity == 0 {
		capacity = 64 // room of the array that is made when the slot has none yet
	}
	for _, o := range u.ops {
		if o.kind != opPut {
			continue
		}
		v, blocks, err := u.next.sets.value(o.entry.Ports, capacity)
		if err != nil {
			return err
		}
		u.values[&o.entry.Ports[0]] = v
		if blocks != nil {
			u.blocks = append(u.blocks, setBlocks{v.A, blocks})
		}
	}
	if len(u.blocks) > 0 && u.maps.portset == nil {
		m, err := bpf.NewInnerPortset("latch_ports", capacity)
		if err != nil {
			return fmt.Errorf("create port sets of slot %d: %w", u.slot, err)
		}
		u.maps.portset = m
		if err := u.t.publish(u.t.portsets, u.slot, m); err != nil {
			return err
		}
	}
	return nil
}

// Run makes the change and returns the slot's new content. When a write fails it takes back what it
// wrote, in the reverse order, and returns the error: the old rules are then in force, whole. When
// taking back fails too, the error says so and the slot's content must be read again.
func (u *Update) Run() (*Content, error) {
	if err := u.write(); err != nil {
		return nil, errors.Join(fmt.Errorf("update slot %d: %w", u.slot, err), u.undo())
	}
	u.next.sets = u.next.sets.keep(u.next.Rules)
	return u.next, nil
}

func (u *Update) write() error {
	for _, b := range u.blocks {
		if err := writeBlocks(u.maps.portset, b.first, b.blocks); err != nil {
			return err
		}
	}
	for i, o := range u.ops {
		if i+1 == u.failAt {
			return errInjected
		}
		if err := u.do(o); err != nil {
			return err
		}
	}
	return nil
}

func (u *Update) do(o op) error {
	m := u.maps.rules[o.dir][o.family][o.store]
	switch o.kind {
	case opPut:
		if err := put(m, o.entry.Prefix, u.values[&o.entry.Ports[0]]); err != nil {
			return fmt.Errorf("write rule %s: %w", o.entry.Prefix, err)
		}
	case opDelete:
		if err := remove(m, o.entry.Prefix); err != nil {
			return fmt.Errorf("delete rule %s: %w", o.entry.Prefix, err)
		}
	default:
		u.t.storeWord(u.slot, o)
	}
	return nil
}

// undo brings the old rules back from whatever a failed update left. What it inserts again may get memory of what
// the update has deleted.
func (u *Update) undo() error {
	now, err := u.t.Read(u.slot)
	if err != nil {
		return fmt.Errorf("take back: %w", err)
	}
	now.sets = u.next.sets // the old sets are still there, marked
	ops, ok := plan(now.Rules, now.shapes, u.old.Rules, math.MaxInt)
	if !ok {
		return fmt.Errorf("take back: %w", ErrRebuild)
	}
	back, err := u.t.prepare(u.slot, now, u.old.Rules, ops)
	if err != nil {
		return fmt.Errorf("take back: %w", err)
	}
	defer back.Close()
	Quiesce()
	if err := back.write(); err != nil {
		return fmt.Errorf("take back: %w", err)
	}
	return nil
}

// Close closes the inner maps that the update opened. The kernel keeps them.
func (u *Update) Close() error { return u.maps.close() }

// sizes counts the elements of the slot's maps.
func (c *Content) sizes() (n [2][2][2]int) {
	for _, d := range policy.Directions {
		for _, f := range families {
			entries := ofFamily(c.Rules.Entries[d], f)
			s := c.shapes[d][f]
			for _, e := range entries {
				n[d][f][s.of(e.Prefix, f)]++
			}
		}
	}
	return n
}

// innerMaps are the opened inner maps of one slot.
type innerMaps struct {
	rules   [2][2][2]*ebpf.Map
	portset *ebpf.Map
}

// open opens an inner map, or makes and publishes an empty one, with room for so many elements.
func (m *innerMaps) open(t *Tables, slot uint32, d policy.Direction, f family, st store, room int) error {
	in, err := inner(t.outer[d][f][st], slot)
	if err != nil {
		return err
	}
	if in == nil {
		if in, err = newInner(st, f, withSpare(room, spareEntries)); err != nil {
			return err
		}
		if err := t.publish(t.outer[d][f][st], slot, in); err != nil {
			return errors.Join(err, in.Close())
		}
	}
	m.rules[d][f][st] = in
	if room > int(in.MaxEntries()) {
		return fmt.Errorf("%w: %d rules in a map for %d", ErrRebuild, room, in.MaxEntries())
	}
	return nil
}

func (m *innerMaps) close() error {
	var errs []error
	for _, d := range m.rules {
		for _, f := range d {
			for _, in := range f {
				if in != nil {
					errs = append(errs, in.Close())
				}
			}
		}
	}
	if m.portset != nil {
		errs = append(errs, m.portset.Close())
	}
	return errors.Join(errs...)
}
