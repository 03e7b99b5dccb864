package enforce

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/bpf"
)

// kept are slots that are free, or about to be, and may have small maps for the next rules, so that who fills them
// need not wait for readers of the kernel. They have them for a moment only, unless rules change all the time.
type kept struct {
	mu      sync.Mutex
	slots   map[uint32]bool
	idle    *time.Timer
	purging sync.Mutex // also held while the objects are closed
}

const (
	maxKept = 128
	keepFor = 2 * time.Second
)

// keep tells whether a slot that is given back may keep maps.
func (e *Enforcer) keep(slot uint32) bool {
	k := &e.emptier.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if !e.cfg.FreeLater || len(k.slots) >= maxKept {
		return false
	}
	k.note(slot, e.purge)
	return true
}

// note adds a slot, which is looked at again when none was added for a while.
func (k *kept) note(slot uint32, purge func()) {
	if k.slots == nil {
		k.slots = map[uint32]bool{}
	}
	k.slots[slot] = true
	if k.idle == nil {
		k.idle = time.AfterFunc(keepFor, purge)
		return
	}
	k.idle.Reset(keepFor)
}

// taken notes that a slot is free no more.
func (k *kept) taken(slot uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.slots, slot)
}

// keepFound takes note of the maps that a killed process has left in free slots.
func (e *Enforcer) keepFound(o *objects) {
	if !e.cfg.FreeLater {
		return
	}
	k := &e.emptier.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.slots)
	for slot := uint32(bpf.FirstSlot); slot < bpf.MaxSlots; slot++ {
		if o.isFree(slot) && o.tables.HasMaps(slot) {
			k.note(slot, e.purge)
		}
	}
}

// purge takes the maps out of free slots.
func (e *Enforcer) purge() {
	k := &e.emptier.kept
	k.purging.Lock()
	defer k.purging.Unlock()
	e.mu.RLock()
	o := e.objects
	e.mu.RUnlock()
	k.mu.Lock()
	more := o != nil && len(k.slots) > 0
	k.mu.Unlock()
	for more {
		var err error
		if more, err = e.purgeSome(o); err != nil {
			e.log.Warn("free slots keep their maps for now", "error", err)
			break
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.slots) > 0 && o != nil { // of those that are not free yet, or after an error
		k.idle.Reset(keepFor)
	}
}

// purgeSome takes the maps out of some free slots, under the node lock: nobody takes one of them meanwhile.
func (e *Enforcer) purgeSome(o *objects) (more bool, err error) {
	held, err := e.locks.AcquireNode(context.Background(), e.cfg.LockTimeout)
	if err != nil {
		return false, err
	}
	defer held.Release()
	var some []uint32
	k := &e.emptier.kept
	k.mu.Lock()
	for slot := range k.slots {
		if more = len(some) == emptiedTogether; more {
			break
		}
		if o.isFree(slot) {
			some = append(some, slot)
			delete(k.slots, slot)
		}
	}
	k.mu.Unlock()
	return more, inParallel(some, o.tables.Clear)
}

func (o *objects) isFree(slot uint32) bool {
	s := o.slots.At(int(slot))
	return atomic.LoadUint32(&s.Flags) == 0 && s.Identifier == [16]byte{} // with an owner, only its flags were lost
}
