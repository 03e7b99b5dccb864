package enforce

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// ErrNoSlot says that all slots of the node are taken.
var ErrNoSlot = errors.New("no free slot")

// rules brings the identifier's slots to the desired rules: in place when the change is small and
// no packet can meet a mixture, else in a spare slot to which bind moves the pods.
func (a *application) rules(ctx context.Context) error {
	if a.req.Create == nil || a.req.Default != "" {
		return nil
	}
	create, running := a.req.Create, a.req.Running
	if a.req.HoldRunning && a.hasRunning() && a.owns(a.rec.Running.Slot) {
		return a.hold(ctx, create)
	}
	if running == nil || running.Hash() == create.Hash() || !a.hasRunning() {
		running = create
	}
	if create == running {
		if err := a.write(ctx, a.plan(&a.rec.Create, create)); err != nil {
			return err
		}
		a.rec.Running = a.rec.Create
		return nil
	}
	if a.rec.Running.Slot == a.rec.Create.Slot {
		// They part: the running pods keep the slot, the new ones get another.
		a.rec.Create = state.SlotRef{}
	}
	return a.write(ctx, a.plan(&a.rec.Running, running), a.plan(&a.rec.Create, create))
}

// hold writes the rules for new pods only. They need another slot when they are not the rules that the
// running pods have.
func (a *application) hold(ctx context.Context, create *policy.Rules) error {
	if a.rec.Create.Slot == a.rec.Running.Slot && a.o.slotHash(a.rec.Create.Slot) != create.Hash() {
		a.rec.Create = state.SlotRef{}
	}
	return a.write(ctx, a.plan(&a.rec.Create, create))
}

// hasRunning tells whether a pod is bound to the identifier's rules now, or runs and is about to be.
func (a *application) hasRunning() bool {
	for _, m := range a.members {
		if !m.bind || m.Adopted || m.Phase == state.PhaseEnforced {
			return true
		}
	}
	return false
}

// owns tells whether a slot is complete and belongs to the identifier: a record may be older than
// the kernel's objects.
func (a *application) owns(slot uint32) bool {
	if slot < bpf.FirstSlot || slot >= bpf.MaxSlots {
		return false
	}
	s := a.o.slots.At(int(slot))
	id := a.req.Identifier.Bytes()
	return atomic.LoadUint32(&s.Flags) == bpf.SlotUsed|bpf.SlotComplete && bytes.Equal(s.Identifier[:], id[:])
}

// prepared tells whether a slot can take a new pod: it is complete and holds a whole rule set.
func (a *application) prepared(ref state.SlotRef) bool {
	hash := a.o.slotHash(ref.Slot)
	return a.owns(ref.Slot) && hash != [32]byte{} && hex.EncodeToString(hash[:]) == ref.Hash
}

// allocate takes a free slot for an identifier, under the node lock.
func (e *Enforcer) allocate(ctx context.Context, o *objects, id [16]byte) (uint32, error) {
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return 0, err
	}
	defer held.Release()
	for slot := uint32(bpf.FirstSlot); slot < bpf.MaxSlots; slot++ {
		s := o.slots.At(int(slot))
		if atomic.LoadUint32(&s.Flags) != 0 || s.Identifier != [16]byte{} { // with an owner, only its flags were lost
			continue
		}
		s.Identifier = id
		atomic.StoreUint32(&s.Flags, bpf.SlotUsed)
		return slot, nil
	}
	return 0, fmt.Errorf("%w: all %d are taken", ErrNoSlot, bpf.MaxSlots)
}

// free releases the identifier's slots that no pod and no reference needs any more.
func (a *application) free(context.Context) error {
	if a.req.Create == nil || a.req.Default != "" {
		return nil
	}
	keep := map[uint32]bool{a.rec.Create.Slot: true, a.rec.Running.Slot: true}
	return a.e.freeSlots(a.o, a.req.Identifier.Bytes(), keep)
}

// freeSlots releases every slot of an identifier that is not kept. One to which an interface is bound
// that no record tells of is left: its next owner's rules would judge that interface.
func (e *Enforcer) freeSlots(o *objects, id [16]byte, keep map[uint32]bool) error {
	var free []uint32
	for slot := uint32(bpf.FirstSlot); slot < bpf.MaxSlots; slot++ {
		s := o.slots.At(int(slot))
		if s.Identifier == id && !keep[slot] {
			free = append(free, slot)
		}
	}
	if len(free) == 0 {
		return nil
	}
	bound, err := o.boundSlots()
	if err != nil {
		return err
	}
	free = slices.DeleteFunc(free, func(slot uint32) bool { return bound[slot] })
	e.grace.after(time.Now()) // packets that read pod_state before the pods were moved are through
	var errs []error
	for _, slot := range free {
		errs = append(errs, e.release(o, slot))
	}
	return errors.Join(errs...)
}

// release empties a slot that nothing refers to and gives it back.
func (e *Enforcer) release(o *objects, slot uint32) error {
	s := o.slots.At(int(slot))
	atomic.StoreUint32(&s.Flags, bpf.SlotUsed)
	o.setSlotHash(slot, [32]byte{})
	e.forget(slot)
	if err := errors.Join(o.tables.Clear(slot), e.freeCounters(o, slot)); err != nil {
		return fmt.Errorf("free slot %d: %w", slot, err)
	}
	atomic.StoreUint32(&s.Flags, 0)
	after("emptied")
	s.Identifier = [16]byte{} // last: as long as it has an owner it is looked for
	return nil
}
