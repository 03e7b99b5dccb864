package enforce

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// ErrUnknown says that there is no record of an attachment.
var ErrUnknown = errors.New("unknown attachment")

// Check asks the kernel whether an attachment is in force: both programs are attached in an
// effective place, every interface is bound to the recorded slot, and the slot is complete and holds
// the rules that its record names. It changes nothing.
func (e *Enforcer) Check(ctx context.Context, containerID, ifname string) (err error) {
	a, err := e.readAttachment(containerID, ifname)
	if err != nil {
		return err
	}
	if a.Identifier == "" {
		return fmt.Errorf("check %s/%s: %w", containerID, ifname, ErrUnknown)
	}
	held, err := e.Lock(ctx, a.Identifier)
	if err != nil {
		return err
	}
	defer func(id identity.Identifier) { err = errors.Join(err, e.unlock(held, id)) }(a.Identifier)
	o, err := e.current(ctx)
	if err != nil {
		return err
	}
	if a, err = e.readAttachment(containerID, ifname); err != nil {
		return err
	}
	return e.CheckAttachment(o, a)
}

// CheckAttachment is Check for a record that the caller has read under its lock.
func (e *Enforcer) CheckAttachment(o *objects, a state.Attachment) error {
	if a.Phase != state.PhaseEnforced {
		return fmt.Errorf("check %s/%s: recorded as %q, not enforced", a.ContainerID, a.IfName, a.Phase)
	}
	for _, in := range a.Interfaces {
		if _, err := e.verify(o, in, a.Slot); err != nil {
			return fmt.Errorf("check interface %s: %w", in.Name, err)
		}
	}
	if a.Slot < bpf.FirstSlot {
		return nil
	}
	rec, err := e.readIdentifier(a.Identifier)
	if err != nil {
		return err
	}
	for _, ref := range []state.SlotRef{rec.Create, rec.Running} {
		if hash := o.slotHash(a.Slot); ref.Slot == a.Slot && hex.EncodeToString(hash[:]) == ref.Hash {
			return nil
		}
	}
	return fmt.Errorf("check slot %d: it does not hold the rules recorded for identifier %s", a.Slot, a.Identifier)
}

// hooks opens the conversation with an interface of a record. The error wraps attach.ErrGone when it is no
// more, whoever has its index now.
func (e *Enforcer) hooks(in state.Interface) (*attach.Interface, error) {
	return attach.Open(in.Ifindex, in.Name, e.linkPin(in, attach.ToPod), e.linkPin(in, attach.FromPod))
}

// Gone tells whether all interfaces of an attachment are no more. When the kernel does not say, they are taken to be
// there.
func (e *Enforcer) Gone(a state.Attachment) bool {
	for _, in := range a.Interfaces {
		hooks, err := e.hooks(in)
		if err == nil {
			_ = hooks.Close()
		}
		if !errors.Is(err, attach.ErrGone) {
			return false
		}
	}
	return true
}

// linkPin is where the tcx link of one side of an interface is pinned.
func (e *Enforcer) linkPin(in state.Interface, side attach.Side) string {
	return e.pins.Link(in.PodID, side.String())
}

// readIdentifier reads a record, of which only the slots matter to who only binds; absent is an empty one.
func (e *Enforcer) readIdentifier(id identity.Identifier) (rec state.IdentifierRecord, err error) {
	if e.cfg.BindOnly {
		rec.Identifier = id
		rec.Create, rec.Running, err = e.store.ReadSlots(id)
	} else {
		rec, err = e.store.ReadIdentifier(id)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return state.IdentifierRecord{Identifier: id}, nil
	}
	return rec, err
}

// readAttachment reads a record; absent is an empty one.
func (e *Enforcer) readAttachment(containerID, ifname string) (state.Attachment, error) {
	a, err := e.store.ReadAttachment(containerID, ifname)
	if errors.Is(err, fs.ErrNotExist) {
		return state.Attachment{}, nil
	}
	return a, err
}
