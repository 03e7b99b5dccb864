package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// Tables are the node's rule maps: the arrays of maps, by slot, and the slot headers.
type Tables struct {
	slots    *bpf.Array[bpf.Slot]
	outer    [2][2][2]*ebpf.Map // [direction][family][store]
	portsets *ebpf.Map
}

// NewTables takes the node's maps by name, as opened or loaded by the caller, who keeps owning them.
func NewTables(maps map[string]*ebpf.Map, slots *bpf.Array[bpf.Slot]) (*Tables, error) {
	t := &Tables{slots: slots, portsets: maps["portsets"]}
	names := [2][2][2]string{
		policy.Ingress: {{"rules_in4", "trie_in4"}, {"rules_in6", "trie_in6"}},
		policy.Egress:  {{"rules_out4", "trie_out4"}, {"rules_out6", "trie_out6"}},
	}
	for _, d := range policy.Directions {
		for _, f := range families {
			for _, s := range []store{inHash, inTrie} {
				m := maps[names[d][f][s]]
				if m == nil {
					return nil, fmt.Errorf("open rule tables: map %s is missing", names[d][f][s])
				}
				t.outer[d][f][s] = m
			}
		}
	}
	if t.portsets == nil {
		return nil, errors.New("open rule tables: map portsets is missing")
	}
	return t, nil
}

// inner opens the inner map of a slot. It returns nil without error when the slot has none.
func inner(outer *ebpf.Map, slot uint32) (*ebpf.Map, error) {
	var m *ebpf.Map
	err := outer.Lookup(slot, &m)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open inner map %d of %s: %w", slot, outer, err)
	}
	return m, nil
}

// clearInner removes a slot's inner map from an outer one. Absent is fine; it is asked for first, since before
// Linux 6.8 a delete waits for readers also when there is nothing to delete.
func clearInner(outer *ebpf.Map, slot uint32) error {
	var id uint32
	if err := outer.Lookup(slot, &id); errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	if err := outer.Delete(slot); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("clear inner map %d of %s: %w", slot, outer, err)
	}
	return nil
}

// shape reads how the kernel looks up one direction and family of a slot.
func (t *Tables) shape(slot uint32, d policy.Direction, f family) shape {
	h := t.slots.At(int(slot))
	return shapeOfWords(atomic.LoadUint32(&h.Lens[d][f]), atomic.LoadUint32(&h.Trie[d][f]))
}

func (t *Tables) storeWord(slot uint32, o op) {
	h := t.slots.At(int(slot))
	switch o.kind {
	case opLens:
		atomic.StoreUint32(&h.Lens[o.dir][o.family], o.shape.word())
	case opTrie:
		var on uint32
		if o.shape.trie {
			on = 1
		}
		atomic.StoreUint32(&h.Trie[o.dir][o.family], on)
	case opMiss:
		atomic.StoreUint32(&h.OnMiss[o.dir], encodeResult(o.miss))
	}
}

func put(m *ebpf.Map, p netip.Prefix, v bpf.RuleVal) error {
	if p.Addr().Is4() {
		return m.Put(bpf.NewRuleKey4(p), v)
	}
	return m.Put(bpf.NewRuleKey6(p), v)
}

func remove(m *ebpf.Map, p netip.Prefix) error {
	var err error
	if p.Addr().Is4() {
		err = m.Delete(bpf.NewRuleKey4(p))
	} else {
		err = m.Delete(bpf.NewRuleKey6(p))
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}
