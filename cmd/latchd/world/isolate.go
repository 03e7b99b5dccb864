package world

import (
	"maps"
	"slices"
	"time"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// isolation is what holds for running pods in one direction.
type isolation struct {
	inForce bool
	since   time.Time // when a policy first wanted it, zero if none does or it is in force
	due     time.Time // when it comes into force, zero if nothing is waited for
}

// Earlier is what an earlier run may have left in force for what runs of an identifier.
type Earlier struct {
	Policies []policy.PolicyRef // with rules
	Isolates [2]bool
}

// isolates says whether a direction was isolated. Nothing is left of no earlier run.
func (e *Earlier) isolates(d policy.Direction) bool { return e != nil && e.Isolates[d] }

// SetRunning says whether something of an identifier is attached. An identifier becomes running with
// everything in force that selects it; later policies have to be quiet first. An identifier that is
// running is kept when its last pod is gone.
func (w *World) SetRunning(id identity.Identifier, running bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.idents[id]
	if i == nil || i.running == running {
		return
	}
	i.running = running
	i.isolation, i.under = [2]isolation{}, nil
	delete(w.waiting, i)
	if !running {
		w.release(i)
		return
	}
	i.under = maps.Clone(i.applied)
	for p := range i.selected {
		c := w.content(p)
		_, under := i.under[p]
		for _, d := range policy.Directions {
			if c.isolates(d) && (!c.pending || under || i.earlier.isolates(d)) {
				i.isolation[d].inForce = true
			}
		}
	}
}

// Adopt says that something of an identifier is attached for which there may be no pod any more, as a
// record of an earlier run tells, and what that run may have left in force for it.
func (w *World) Adopt(id identity.Identifier, namespace string, labels map[string]string, earlier Earlier) {
	w.change(func(b *batch) {
		i := b.idents[id]
		if i == nil {
			i = b.newIdent(id, namespace)
			i.labels, i.unlabeled = labels, identity.Of(namespace, labels) != id
		}
		i.earlier = &earlier
		b.touch(i)
	})
	w.SetRunning(id, true)
}

// Applying says that the rules of a Desired are about to be written: pods may be bound to them from now
// on, whatever becomes of the rest.
func (w *World) Applying(id identity.Identifier, d Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.idents[id]; i != nil {
		w.noteApplied(i, d)
	}
}

// Applied says that the rules of a Desired are in the kernel. Unless what runs is held, nothing of an
// earlier run is left there.
func (w *World) Applied(id identity.Identifier, d Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.idents[id]
	if i == nil {
		return
	}
	clear(i.applied)
	w.noteApplied(i, d)
	if !d.HoldRunning {
		i.earlier = nil
	}
}

func (w *World) noteApplied(i *ident, d Desired) {
	for _, ref := range d.Policies {
		if p := w.policies[ref]; p != nil {
			i.applied[p] = struct{}{}
		}
	}
}

// holds says whether what runs has rules of a policy, from an earlier run, that nobody knows any more.
func (w *World) holds(p *policyState, i *ident) bool {
	return i.running && i.earlier != nil && w.content(p).pending && slices.Contains(i.earlier.Policies, p.ref)
}

// settle brings an identifier's memory up to date: which policies select it, and which directions are
// isolated for what runs.
func (b *batch) settle(i *ident) {
	for p := range i.selected {
		if b.policies[p.ref] != p || !b.selects(p, i) {
			delete(i.selected, p)
			delete(i.applied, p)
			delete(i.under, p)
		}
	}
	for _, namespace := range []string{i.namespace, ""} {
		for p := range b.policiesIn[namespace] {
			if b.selects(p, i) {
				i.selected[p] = struct{}{}
				b.rememberListing(p, i)
			}
		}
	}
	if !i.running {
		return
	}
	waits := false
	for _, d := range policy.Directions {
		b.settleDirection(i, d)
		waits = waits || !i.isolation[d].due.IsZero()
	}
	if waits {
		b.waiting[i] = struct{}{}
	} else {
		delete(b.waiting, i)
	}
}

func (b *batch) settleDirection(i *ident, d policy.Direction) {
	wanted, known := false, false
	for p := range i.selected {
		c := b.content(p)
		wanted = wanted || c.isolates(d)
		known = known || c.isolates(d) && !c.pending
	}
	s := &i.isolation[d]
	switch {
	case !wanted:
		*s = isolation{}
		return
	case s.inForce:
		return
	case i.earlier.isolates(d):
		*s = isolation{inForce: true}
		return
	case !known: // pending policies alone: what runs keeps what it has
		*s = isolation{}
		return
	case b.synced.IsZero(), // the first listing: these are not new
		b.opts.Mode == Strict: // closed already: a policy can only allow more
		*s = isolation{inForce: true}
		return
	}
	if s.since.IsZero() {
		s.since = b.now
	}
	s.due = time.Time{}
	for p := range i.selected {
		if c := b.content(p); c.isolates(d) && !c.pending {
			s.due = earlier(s.due, p.quietAt(s.since, b.opts))
		}
	}
	if !s.due.After(b.now) {
		*s = isolation{inForce: true}
	}
}
