package enforce

import (
	"context"
	"errors"
	"fmt"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/state"
)

// Promote moves an attachment from clsact filters, which attach fast, to tcx links, which cost a packet
// less. There is no moment without our programs. It reports false when there was nothing to do: unknown,
// not enforced, already promoted, or moved to another identifier meanwhile. Errors: attach.ErrGone,
// attach.ErrNotSupported.
func (e *Enforcer) Promote(ctx context.Context, containerID, ifname string) (bool, error) {
	a, err := e.readAttachment(containerID, ifname)
	if err != nil || a.Identifier == "" {
		return false, err
	}
	held, err := e.Lock(ctx, a.Identifier)
	if err != nil {
		return false, err
	}
	done, err := e.promoteLocked(ctx, held, a)
	return done, errors.Join(err, e.unlock(held, a.Identifier))
}

func (e *Enforcer) promoteLocked(ctx context.Context, held *lock.Held, before state.Attachment) (bool, error) {
	o, err := e.current(ctx)
	if err != nil {
		return false, err
	}
	a, err := e.readAttachment(before.ContainerID, before.IfName)
	if err != nil || a.Identifier != before.Identifier || a.Phase != state.PhaseEnforced {
		return false, err
	}
	lock.MustCover(held, a.Identifier)
	done := false
	for i := range a.Interfaces {
		in := &a.Interfaces[i]
		if attach.Mode(in.Mode) == attach.ModeTCX {
			continue
		}
		if err := e.promoteInterface(o, *in); err != nil {
			return done, fmt.Errorf("promote interface %s: %w", in.Name, err)
		}
		mode, err := e.verify(o, *in, a.Slot)
		if err != nil {
			return done, fmt.Errorf("promote interface %s: %w", in.Name, err)
		}
		in.Mode, done = string(mode), true
		if err := e.store.WriteAttachment(a); err != nil {
			return done, err
		}
	}
	return done, e.HoldLinks(a)
}

func (e *Enforcer) promoteInterface(o *objects, in state.Interface) error {
	hooks, err := e.hooks(in)
	if err != nil {
		return err
	}
	defer hooks.Close()
	for _, side := range attach.Sides {
		if err := hooks.Attach(side, o.progs[side.String()], attach.ModeTCX, e.linkPin(in, side)); err != nil {
			return err
		}
	}
	return nil
}
