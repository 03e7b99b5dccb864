package world

import (
	"context"
	"slices"
	"time"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// Due does what is due by now and returns the identifiers affected, and when something is due next, zero
// if nothing is.
func (w *World) Due() (affected []identity.Identifier, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	affected = w.changeLocked(func(*batch) {})
	for p := range w.timed {
		next = earlier(next, p.due(w))
	}
	for i := range w.waiting {
		for _, d := range policy.Directions {
			next = earlier(next, i.isolation[d].due)
		}
	}
	return affected, next
}

// Run calls notify with the identifiers affected whenever something was due, until ctx ends.
func (w *World) Run(ctx context.Context, notify func(...identity.Identifier)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		affected, next := w.Due()
		if len(affected) > 0 {
			notify(affected...)
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(0, next.Sub(w.opts.Now())))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// advance does what is due.
func (b *batch) advance() {
	for p := range b.timed {
		if b.expire(p) {
			b.touchPolicy(p)
		}
	}
	for i := range b.waiting {
		for _, d := range policy.Directions {
			if due := i.isolation[d].due; !due.IsZero() && !due.After(b.now) {
				b.touch(i)
			}
		}
	}
}

// expire drops leaving rules and outlived endpoints objects whose time is over.
func (b *batch) expire(p *policyState) bool {
	before := len(p.leaving)
	p.leaving = slices.DeleteFunc(p.leaving, func(l leaving) bool { return isOver(p.leavingDue(l, b.opts), b.now) })
	changed := len(p.leaving) != before
	if isOver(p.expiry(b.World), b.now) {
		p.expired, changed = true, true
	}
	if changed {
		p.built = nil
	}
	return changed
}

// isOver says whether a time, of which zero is none, has come.
func isOver(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }
