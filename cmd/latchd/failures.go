package main

import "time"

// failureAge is how old the word of a failed ADD may be to be passed on: it was left while latchd was down.
const failureAge = 10 * time.Minute

// takeFailures counts the failed ADDs that the plugin left word of, passes them on and takes them away.
func (d *daemon) takeFailures() {
	failures, err := d.store.ListFailures()
	if err != nil { // some cannot be read: they must not be there for ever
		d.log.Warn("failed ADDs", "error", err)
		defer func() { _ = d.store.DeleteFailures() }()
	}
	for _, f := range failures {
		if err := d.store.DeleteFailure(f); err != nil {
			d.log.Warn("failed ADDs", "error", err)
			continue
		}
		d.observation.metrics.AddFailed(f.Code)
		if time.Since(f.At) < failureAge {
			d.source.failed(f)
		}
	}
}
