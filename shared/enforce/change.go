package enforce

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/rules"
	"github.com/latch-cni/latch/shared/state"
)

// change is what makes a slot hold rules.
type change struct {
	ref     *state.SlotRef
	hash    [32]byte
	rules   *policy.Rules
	old     *rules.Content // of the slot that ref has
	update  *rules.Update  // of that slot; nil: in a spare one
	content *rules.Content // that is written, and not marked complete yet
	err     error          // why neither can be
}

// plan finds out how to make ref a slot that holds the rules. It returns nil when it is one.
func (a *application) plan(ref *state.SlotRef, want *policy.Rules) *change {
	hash := want.Hash()
	a.noteSlot(*ref, hash)
	if a.owns(ref.Slot) && a.o.slotHash(ref.Slot) == hash && a.intact(ref.Slot, hash) {
		// The record may be older than the slot: a writer may have died between the two.
		ref.Hash, ref.Generation = hex.EncodeToString(hash[:]), atomic.LoadUint32(&a.o.slots.At(int(ref.Slot)).Generation)
		ref.Sources = want.Sources
		return nil
	}
	c := &change{ref: ref, hash: hash, rules: want}
	if !a.owns(ref.Slot) {
		return c
	}
	if c.old, c.err = a.e.contentOf(a.o, ref.Slot); c.err != nil {
		a.e.log.Warn("content of slot cannot be read, building another", "slot", ref.Slot, "error", c.err)
		c.err = nil
		return c
	}
	if c.update, c.err = a.o.tables.PlanUpdate(ref.Slot, c.old, want); errors.Is(c.err, rules.ErrRebuild) {
		c.old, c.err = nil, nil
	}
	return c
}

// order is that in which changes are made. What can fail for want of slots or memory comes before the first
// write in place, so that all old rules are in force when it fails. But a slot that is in the middle of an
// update, since its writer ended there, has no old rules to keep.
func (a *application) order(c *change) int {
	switch {
	case c.update == nil:
		return 1
	case a.o.slotHash(c.ref.Slot) == [32]byte{}:
		return 0
	}
	return 2
}

// write makes changes. When one fails, those before it are ended.
func (a *application) write(ctx context.Context, changes ...*change) (err error) {
	changes = slices.DeleteFunc(changes, func(c *change) bool { return c == nil })
	slices.SortStableFunc(changes, func(c, d *change) int { return cmp.Compare(a.order(c), a.order(d)) })
	for _, c := range changes {
		a.result.Changed = true
		if err == nil {
			err = a.make(ctx, c)
		}
		if c.update != nil {
			_ = c.update.Close()
		}
	}
	if err != nil {
		return errors.Join(err, a.abandon())
	}
	return nil
}

// make writes the rules of a change.
func (a *application) make(ctx context.Context, c *change) (err error) {
	switch {
	case c.err != nil:
		return c.err
	case c.update != nil:
		c.content, err = a.e.update(a.o, c)
	default:
		c.content, err = a.fill(ctx, c)
	}
	if err == nil {
		a.pending = append(a.pending, c)
	}
	return err
}

// fill writes rules into a spare slot. Before the first ones of a process, which have all interfaces verified, it
// gives back those that killed ones have filled.
func (a *application) fill(ctx context.Context, c *change) (*rules.Content, error) {
	if a.req.Verify && len(a.pending) == 0 {
		_ = a.free(a.rec, a.old) // what stays is tried again, and told, at the end
	}
	slot, err := a.e.allocate(ctx, a.o, a.req.Identifier.Bytes())
	if err != nil {
		return nil, err
	}
	content, err := a.o.tables.Fill(slot, c.rules)
	if err != nil {
		return nil, errors.Join(err, a.e.takeBack(a.o, slot))
	}
	*c.ref = state.SlotRef{Slot: slot}
	return content, nil
}

// abandon ends a run that could not make all changes. Packets meet what was written in place already: it is
// marked complete, or flows that it denies would go on. They do not meet spare slots.
func (a *application) abandon() error {
	var errs []error
	for _, c := range a.pending {
		if c.update == nil {
			errs = append(errs, a.e.takeBack(a.o, c.ref.Slot))
		} else {
			a.e.complete(a.o, c)
		}
	}
	a.pending = nil
	return errors.Join(errs...)
}

// complete marks the written slots.
func (a *application) complete(context.Context) error {
	for _, c := range a.pending {
		a.e.complete(a.o, c)
	}
	if a.rec.Running.Slot == a.rec.Create.Slot {
		a.rec.Running = a.rec.Create
	}
	return nil
}

// complete marks a written slot: the new generation makes every flow be judged again, the hash says what the
// slot holds, and the flag opens it.
func (e *Enforcer) complete(o *objects, c *change) {
	slot := c.ref.Slot
	generation := o.renew(slot)
	o.setSlotHash(slot, c.hash)
	atomic.StoreUint32(&o.slots.At(int(slot)).Flags, bpf.SlotUsed|bpf.SlotComplete)
	e.remember(o, slot, c.hash, c.content)
	c.ref.Hash, c.ref.Generation = hex.EncodeToString(c.hash[:]), generation
	c.ref.Sources, c.ref.Since = c.rules.Sources, time.Now()
}

// update changes a live slot in place.
func (e *Enforcer) update(o *objects, c *change) (*rules.Content, error) {
	slot := c.ref.Slot
	if c.update.Frees() {
		e.waitFreed(slot)
	}
	hash := o.slotHash(slot)
	o.setSlotHash(slot, [32]byte{})
	e.forget(slot)
	next, err := c.update.Run()
	if c.update.Frees() {
		e.noteFreed(slot) // also when it was taken back
	}
	if err != nil {
		if back, readErr := o.tables.Read(slot); readErr == nil && back.Rules.Hash() == c.old.Rules.Hash() {
			o.renew(slot) // for flows that what is taken back has admitted
			o.setSlotHash(slot, hash)
		}
		return nil, err
	}
	return next, nil
}
