package reconcile

import (
	"context"
	"time"
)

// layoutPeriod is how often is looked whether older layouts can go.
const layoutPeriod = 200 * time.Millisecond

// RetireLayouts removes the kernel objects that a build with an older layout has left, when everything that
// was taken over is in force in this one. It returns when none is left, or the context ends.
func (r *Reconciler) RetireLayouts(ctx context.Context) {
	tick := time.NewTicker(layoutPeriod)
	defer tick.Stop()
	var said string
	for {
		if r.Progress().Adopted {
			done, err := r.enforcer.RetireLayouts(ctx)
			if done {
				return
			}
			if err != nil && err.Error() != said {
				said = err.Error()
				r.log.Error("remove older layouts", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
