package enforce

import (
	"sync/atomic"

	"github.com/latch-cni/latch/bpf"
)

// No two slots that packets are judged by have the same generation: a flow that one of them admitted is
// judged again as soon as its pod is bound to another. What keeps it so is that every number is given
// once. What brings it back, should the counter have been lost or be around once, is that a number that a
// slot has is passed over, and that tellApart looks.

// newGeneration gives a number that no slot has.
func (o *objects) newGeneration() uint32 {
	for {
		g := atomic.AddUint32(&o.node.At(0).NextGeneration, 1)
		if g != 0 && !o.hasGeneration(g) {
			return g
		}
	}
}

func (o *objects) hasGeneration(g uint32) bool {
	for slot := range bpf.MaxSlots {
		if atomic.LoadUint32(&o.slots.At(slot).Generation) == g {
			return true
		}
	}
	return false
}

// renew has every flow that a slot admitted judged again, and returns the slot's new generation.
func (o *objects) renew(slot uint32) uint32 {
	s := o.slots.At(int(slot))
	g := o.newGeneration()
	atomic.StoreUint32(&s.ChangedAt, bpf.Now())
	atomic.StoreUint32(&s.Generation, g)
	return g
}

// renewAll has every flow of the node judged again.
func (o *objects) renewAll() {
	for slot := range uint32(bpf.MaxSlots) {
		if o.judges(slot) {
			o.renew(slot)
		}
	}
}

// tellApart gives new generations to slots that share theirs, and returns them.
func (o *objects) tellApart() (shared []uint32) {
	having := map[uint32][]uint32{}
	for slot := range uint32(bpf.MaxSlots) {
		if o.judges(slot) {
			g := atomic.LoadUint32(&o.slots.At(int(slot)).Generation)
			having[g] = append(having[g], slot)
		}
	}
	for _, slots := range having {
		if len(slots) < 2 {
			continue
		}
		for _, slot := range slots {
			o.renew(slot)
		}
		shared = append(shared, slots...)
	}
	return shared
}

// judges tells whether packets are judged by a slot.
func (o *objects) judges(slot uint32) bool {
	return atomic.LoadUint32(&o.slots.At(int(slot)).Flags)&bpf.SlotComplete != 0
}
