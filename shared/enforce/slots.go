package enforce

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"

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

// owns tells whether a slot is complete and belongs to the identifier, and will: a record may be older than
// the kernel's objects.
func (a *application) owns(slot uint32) bool {
	if slot < bpf.FirstSlot || slot >= bpf.MaxSlots {
		return false
	}
	s := a.o.slots.At(int(slot))
	return atomic.LoadUint32(&s.Flags) == bpf.SlotUsed|bpf.SlotComplete && s.Identifier == a.req.Identifier.Bytes() && !a.e.emptier.has(a.o, slot)
}

// prepared tells whether a slot can take a new pod: it is complete and holds a whole rule set.
func (a *application) prepared(ref state.SlotRef) bool {
	hash := a.o.slotHash(ref.Slot)
	return a.owns(ref.Slot) && hash != [32]byte{} && hex.EncodeToString(hash[:]) == ref.Hash
}

// allocate takes a free slot for an identifier. When there is none it waits for those that are being given back.
func (e *Enforcer) allocate(ctx context.Context, o *objects, id [16]byte) (uint32, error) {
	slot, err := e.takeFree(ctx, o, id)
	if errors.Is(err, ErrNoSlot) && e.emptier.wait() {
		slot, err = e.takeFree(ctx, o, id)
	}
	return slot, err
}

// takeFree takes a free slot, under the node lock.
func (e *Enforcer) takeFree(ctx context.Context, o *objects, id [16]byte) (uint32, error) {
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return 0, err
	}
	defer held.Release()
	for slot := uint32(bpf.FirstSlot); slot < bpf.MaxSlots; slot++ {
		if !o.isFree(slot) {
			continue
		}
		s := o.slots.At(int(slot))
		s.Identifier = id
		atomic.StoreUint32(&s.Flags, bpf.SlotUsed)
		e.emptier.kept.taken(slot)
		return slot, nil
	}
	return 0, fmt.Errorf("%w: all %d are taken", ErrNoSlot, bpf.MaxSlots)
}

// free releases the identifier's slots that no pod and no reference needs any more. A run that failed does so, too,
// or each of those that follow would take another one.
func (a *application) free(refs ...state.IdentifierRecord) error {
	if a.req.Create == nil || a.req.Default != "" || a.held.Current() != nil {
		return nil
	}
	keep := map[uint32]bool{}
	for _, r := range refs {
		keep[r.Create.Slot], keep[r.Running.Slot] = true, true
	}
	return a.e.freeSlots(a.o, a.req.Identifier.Bytes(), keep, a.e.cfg.FreeLater)
}
