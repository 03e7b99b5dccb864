package world

import (
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
	i.isolation = [2]isolation{}
	clear(i.held)
	delete(w.waiting, i)
	if !running {
		w.release(i)
		return
	}
	for p := range i.selected {
		c := w.content(p)
		_, applied := i.applied[p]
		if c.pending && !applied {
			i.held[p] = struct{}{}
			continue
		}
		for _, d := range policy.Directions {
			if c.isolates(d) {
				i.isolation[d].inForce = true
			}
		}
	}
}

// Adopt says that something of an identifier is attached for which there may be no pod any more, as a
// record of an earlier run tells.
func (w *World) Adopt(id identity.Identifier, namespace string, labels map[string]string) {
	w.change(func(b *batch) {
		if b.idents[id] == nil {
			i := b.newIdent(id, namespace)
			i.labels, i.unlabeled = labels, identity.Of(namespace, labels) != id
			b.touch(i)
		}
	})
	w.SetRunning(id, true)
}

// Applied says that the rules of a Desired are in the kernel.
func (w *World) Applied(id identity.Identifier, d Desired) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.idents[id]
	if i == nil || d.HoldRunning && i.running {
		return
	}
	clear(i.applied)
	for _, ref := range d.Policies {
		if p := w.policies[ref]; p != nil {
			i.applied[p] = struct{}{}
		}
	}
}

// settle brings an identifier's memory up to date: which policies select it, and which directions are
// isolated for what runs.
func (b *batch) settle(i *ident) {
	for p := range i.selected {
		if b.policies[p.ref] != p || !b.selects(p, i) {
			delete(i.selected, p)
			delete(i.held, p)
			delete(i.applied, p)
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
	b.settleHeld(i)
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

// settleHeld ends what was held because of a policy that is not pending any more. It may have been in
// force, so it is now, at once.
func (b *batch) settleHeld(i *ident) {
	for p := range i.selected {
		c := b.content(p)
		_, held := i.held[p]
		switch {
		case c.pending && b.synced.IsZero():
			i.held[p] = struct{}{}
		case held && !c.pending:
			delete(i.held, p)
			for _, d := range policy.Directions {
				if c.isolates(d) {
					i.isolation[d].inForce = true
				}
			}
		}
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
