package enforce

import (
	"context"
	"errors"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/state"
)

// RetireLayouts removes the objects of older layouts as soon as nothing needs them: every recorded attachment
// is in force in this layout. Until then programs of both judge, and a packet needs the consent of both. It
// reports whether none is left. Call it again until then.
func (e *Enforcer) RetireLayouts(ctx context.Context) (bool, error) {
	older, err := e.pins.OlderLayouts()
	if err != nil || len(older) == 0 {
		return err == nil, err
	}
	if needed, err := e.needOlder(ctx); err != nil || needed {
		return false, err
	}
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, v := range older {
		errs = append(errs, e.pins.RemoveLayout(v)) // links end with their pins
		e.log.Info("everything is in force in this build's layout, removed an older one", "layout", v)
	}
	err = errors.Join(append(errs, held.Release())...)
	return err == nil, err
}

// needOlder tells whether an attachment is not in force in this layout.
func (e *Enforcer) needOlder(ctx context.Context) (bool, error) {
	o, err := e.current(ctx)
	if err != nil {
		return false, err
	}
	atts, err := e.store.ListAttachments()
	if err != nil {
		return false, err
	}
	for _, a := range atts {
		for _, in := range a.Interfaces {
			_, err := e.verify(o, in, a.Slot)
			if errors.Is(err, attach.ErrGone) {
				continue
			}
			if err != nil || a.Phase != state.PhaseEnforced {
				return true, nil
			}
		}
	}
	return false, nil
}
