package main

import (
	"context"
	"time"
)

// expirePeriod is how often dead flows are taken out of the tables.
const expirePeriod = 5 * time.Second

// expireFlows takes dead flows out of the tables until the context ends.
func (d *daemon) expireFlows(ctx context.Context) {
	tick := time.NewTicker(expirePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := d.enforcer.Expire(ctx); err != nil && ctx.Err() == nil {
				d.log.Error("expire flows", "error", err)
			}
		}
	}
}
