package reconcile

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// layoutPeriod is how often is looked whether older layouts can go.
const layoutPeriod = 200 * time.Millisecond

// RetireLayouts removes the kernel objects that a build with an older layout has left, when everything that
// was taken over is in force in this one. It returns when none is left, or the context ends.
func (r *Reconciler) RetireLayouts(ctx context.Context) {
	var said string
	_ = wait.PollUntilContextCancel(ctx, layoutPeriod, true, func(ctx context.Context) (done bool, _ error) {
		if !r.Progress().Adopted {
			return false, nil
		}
		done, err := r.enforcer.RetireLayouts(ctx)
		if err != nil && err.Error() != said {
			said = err.Error()
			r.log.Error("remove older layouts", "error", err)
		}
		return done, nil
	})
}
