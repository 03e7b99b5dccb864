package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/state"
)

// Remove ends the enforcement of one attachment, or of all of a container when ifname is empty. It
// is the reverse of Apply: the binding goes first, so that an interface that outlives it for a
// moment is closed; the programs go with the interface. Unknown attachments are no error, and it
// may be called again at any time. It takes the lock itself.
//
// A later attachment that was given the same interface name or index is another one, with another
// pod id, and is not touched.
func (e *Enforcer) Remove(ctx context.Context, containerID, ifname string) error {
	return e.remove(ctx, containerID, ifname, false)
}

// Detach is Remove for interfaces that stay: it takes the programs off them, too, and leaves them
// open. For uninstalling.
func (e *Enforcer) Detach(ctx context.Context, containerID, ifname string) error {
	return e.remove(ctx, containerID, ifname, true)
}

func (e *Enforcer) remove(ctx context.Context, containerID, ifname string, open bool) error {
	o, err := e.current(ctx)
	if err != nil {
		return err
	}
	found, err := e.store.FindAttachments(containerID, ifname)
	if ifname != "" && errors.Is(err, state.ErrCorrupt) {
		// Nobody can say what it was, and the runtime would ask again for ever. What may be left in the
		// kernel is closed, and swept by the audit.
		e.log.Error("deleting a record that cannot be read", "container", containerID, "ifname", ifname, "error", err)
		return e.store.DeleteAttachment(containerID, ifname)
	}
	errs := []error{err}
	for _, a := range found {
		errs = append(errs, e.removeOne(ctx, o, a, open))
	}
	return errors.Join(errs...)
}

// removeOne removes an attachment under the lock of the identifier that it has by then: between
// reading the record and taking the lock the pod may have been moved.
func (e *Enforcer) removeOne(ctx context.Context, o *objects, a state.Attachment, open bool) error {
	for {
		held, err := e.Lock(ctx, a.Identifier)
		if err != nil {
			return err
		}
		now, err := e.readAttachment(a.ContainerID, a.IfName)
		if err == nil && now.Identifier == a.Identifier {
			err = e.removeLocked(o, held, now, open)
		}
		err = errors.Join(err, e.unlock(held, a.Identifier))
		if err != nil || now.Identifier == a.Identifier || now.Identifier == "" {
			return err
		}
		a = now
	}
}

// underLock does something with an attachment's record as it is under the lock of its identifier. It does
// nothing, and reports false, when the attachment is gone or moved by then.
func (e *Enforcer) underLock(ctx context.Context, a state.Attachment, do func(now state.Attachment) (bool, error)) (done bool, err error) {
	held, err := e.Lock(ctx, a.Identifier)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, e.unlock(held, a.Identifier)) }()
	now, err := e.readAttachment(a.ContainerID, a.IfName)
	if err != nil || now.Identifier != a.Identifier {
		return false, err
	}
	return do(now)
}

// unlock releases the lock of an identifier, and removes its file when there is nothing left to lock.
func (e *Enforcer) unlock(held *lock.Held, id identity.Identifier) error {
	members, err := e.store.Members(id)
	if errors.Is(err, state.ErrCorrupt) {
		return held.Release() // of another one, and no reason to fail for this one
	}
	if err != nil || len(members) > 0 {
		return errors.Join(err, held.Release())
	}
	if _, err := e.store.ReadIdentifier(id); !errors.Is(err, fs.ErrNotExist) {
		return held.Release()
	}
	return held.ReleaseAndRemove()
}

func (e *Enforcer) removeLocked(o *objects, held *lock.Held, a state.Attachment, open bool) error {
	lock.MustCover(held, a.Identifier)
	for _, in := range a.Interfaces {
		if err := e.removeInterface(o, in, open); err != nil {
			return fmt.Errorf("remove interface %s of container %s: %w", in.Name, a.ContainerID, err)
		}
	}
	after("unbound")
	if err := e.store.RemoveMember(a.Identifier, a.ContainerID, a.IfName); err != nil {
		return err
	}
	return e.store.DeleteAttachment(a.ContainerID, a.IfName)
}

func (e *Enforcer) removeInterface(o *objects, in state.Interface, open bool) error {
	if open {
		detach := func(hooks *attach.Interface, side attach.Side, pin string) error { return hooks.Detach(side, pin) }
		return errors.Join(e.takeOff(in, detach), o.unbind(in))
	}
	if err := o.unbind(in); err != nil || attach.Mode(in.Mode) != attach.ModeTCX {
		return err
	}
	// A link ends with its pin. On an interface that is still there a filter, which belongs to the
	// interface, takes the link's place first.
	return e.takeOff(in, func(hooks *attach.Interface, side attach.Side, pin string) error {
		if hooks.Attach(side, o.progs[side.String()], attach.ModeClsact, pin) == nil {
			return nil
		}
		return hooks.Detach(side, pin) // no place for a filter: the sandbox is ending, its link ends now
	})
}

// takeOff ends what is attached to both sides of an interface. When it is gone, the pins of its links are all
// that is left of it.
func (e *Enforcer) takeOff(in state.Interface, end func(*attach.Interface, attach.Side, string) error) error {
	hooks, err := e.hooks(in)
	if errors.Is(err, attach.ErrGone) {
		return errors.Join(attach.EndLink(e.linkPin(in, attach.ToPod), in.Ifindex), attach.EndLink(e.linkPin(in, attach.FromPod), in.Ifindex))
	}
	if err != nil {
		return err
	}
	defer hooks.Close()
	var errs []error
	for _, side := range attach.Sides {
		errs = append(errs, end(hooks, side, e.linkPin(in, side)))
	}
	return errors.Join(errs...)
}

// Forget gives back everything of an identifier: its slots and its record. Attachments that are
// still bound to it make it an error. The caller removes the lock file by releasing the lock with
// ReleaseAndRemove. Unknown identifiers are no error.
func (e *Enforcer) Forget(ctx context.Context, held *lock.Held, id identity.Identifier) error {
	lock.MustCover(held, id)
	o, err := e.current(ctx)
	if err != nil {
		return err
	}
	members, err := e.store.Members(id)
	if err != nil {
		return err
	}
	if len(members) > 0 {
		return fmt.Errorf("forget identifier %s: %d attachments are bound to it", id, len(members))
	}
	if err := e.freeSlots(o, id.Bytes(), nil, false); err != nil {
		return err
	}
	return e.store.DeleteIdentifier(id)
}
