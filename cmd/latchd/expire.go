package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// expirePeriod is how often dead flows are taken out of the tables, and the others counted.
const expirePeriod = 5 * time.Second

// expireFlows takes dead flows out of the tables until the context ends.
func (d *daemon) expireFlows(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, expirePeriod, true, func(ctx context.Context) (done bool, _ error) {
		if _, err := d.enforcer.Expire(ctx); err != nil && ctx.Err() == nil {
			d.log.Error("expire flows", "error", err)
		}
		return false, nil
	})
}
