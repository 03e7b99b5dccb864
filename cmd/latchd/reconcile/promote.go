package reconcile

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/state"
)

const (
	promoteAge    = 30 * time.Second // an interface that lives so long is worth the wait for RCU
	promotePeriod = 5 * time.Second
)

// Promote moves interfaces that have lived for a while from clsact to tcx, one at a time, until the
// context ends. On a kernel without tcx it returns at once.
func (r *Reconciler) Promote(ctx context.Context) {
	if attach.HaveTCX() != nil {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, promotePeriod, false, func(ctx context.Context) (done bool, _ error) {
		r.promoteOnce(ctx)
		return false, nil
	})
}

func (r *Reconciler) promoteOnce(ctx context.Context) {
	atts, err := r.store.ListAttachments()
	if err != nil {
		r.log.Error("promote", "error", err)
		return
	}
	for _, a := range atts {
		if ctx.Err() != nil {
			return
		}
		if !promotable(a) {
			continue
		}
		if _, err := r.enforcer.Promote(ctx, a.ContainerID, a.IfName); err != nil && !errors.Is(err, attach.ErrGone) {
			r.log.Error("promote", "container", a.ContainerID, "error", err)
		}
	}
}

func promotable(a state.Attachment) bool {
	if a.Phase != state.PhaseEnforced || time.Since(a.CreatedAt).Abs() < promoteAge {
		return false
	}
	for _, in := range a.Interfaces {
		if attach.Mode(in.Mode) == attach.ModeClsact {
			return true
		}
	}
	return false
}
