package reconcile

import (
	"context"
	"errors"
	"slices"

	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/state"
)

// view is what an identifier should be and what is there, at one moment.
type view struct {
	wanted   bool // a pod has it, or something of it runs
	attached bool
	desired  world.Desired
	moves    []state.Attachment    // of its pods, bound elsewhere or to a default slot
	adopts   []state.Attachment    // of its pods, which ran before Latch knew them
	locks    []identity.Identifier // that the moves, and publishing its pods, need
}

// lock takes the locks of an identifier, and returns what holds under them. Which locks are needed is
// itself known for certain only under them: while they were waited for, a pod may have got other labels
// and been published under another identifier. Then it starts again. There are no locks for an
// identifier that is not wanted.
func (r *Reconciler) lock(ctx context.Context, id identity.Identifier) (view, *lock.Held, error) {
	v, err := r.look(id)
	for {
		if err != nil || !v.wanted {
			return v, nil, err
		}
		held, err := r.enforcer.Lock(ctx, v.locks...)
		if err != nil {
			return v, nil, err
		}
		v, err = r.look(id)
		if err == nil && v.wanted && !slices.ContainsFunc(v.locks, func(id identity.Identifier) bool { return !held.Covers(id) }) {
			return v, held, nil
		}
		if err := errors.Join(err, unlock(held)); err != nil {
			return v, nil, err
		}
	}
}

// unlock also removes the files of several locks: those of names, and of identifiers that were left,
// are not needed again.
func unlock(held *lock.Held) error {
	if len(held.IDs()) > 1 {
		return held.ReleaseAndRemove()
	}
	return held.Release()
}

// look also goes on when the record of an attachment cannot be read: the others must not wait for it.
func (r *Reconciler) look(id identity.Identifier) (v view, err error) {
	members, err := r.store.Members(id)
	if err != nil && !errors.Is(err, state.ErrCorrupt) {
		return v, err
	}
	v.attached = len(members) > 0 || err != nil
	unseen := r.unseen.of(id)
	r.world.SetRunning(id, v.attached || len(unseen) > 0)
	if v.desired, v.wanted = r.world.Desired(id); !v.wanted {
		return v, nil
	}
	v.adopts = r.stillUnseen(v.desired, unseen)
	return v, r.arrivals(&v, members)
}

// arrivals finds the attachments of the identifier's pods that are bound elsewhere: under the labels
// that a pod had before, or to a default slot because nothing was known about it, or because its
// identifier was not prepared. That is where it was published last, and wherever attachments of it were
// seen, also in an earlier life of its object or of latchd. A pod whose record is about to change may be about to be bound to a
// default slot, too, under the lock of its name. A pod whose labels are not known has that identifier all along:
// those of own, the attachments that are under it, that are bound to a default slot arrive from there.
func (r *Reconciler) arrivals(v *view, own []state.Attachment) error {
	id := v.desired.Identifier
	for _, a := range own {
		if a.Default != "" && slices.ContainsFunc(v.desired.Pods, func(p world.PodRef) bool { return isOf(a, p.Namespace, p.Name, p.UID) }) {
			v.moves = append(v.moves, a)
		}
	}
	v.locks = []identity.Identifier{id}
	for _, p := range v.desired.Pods {
		was, ok := r.published(p.Namespace, p.Name)
		from := []identity.Identifier{identity.OfName(p.Namespace, p.Name)}
		if ok && was.id != from[0] {
			from = append(from, was.id)
		}
		for other := range r.leftAt(p.Namespace, p.Name) {
			if !slices.Contains(from, other) {
				from = append(from, other)
			}
		}
		current := ok && was == publication{id, p.UID}
		for _, other := range from {
			if other == id {
				continue
			}
			members, err := r.store.Members(other)
			if err != nil && !errors.Is(err, state.ErrCorrupt) {
				return err
			}
			if current && len(members) == 0 {
				continue
			}
			v.locks = append(v.locks, other)
			for _, a := range members {
				if isOf(a, p.Namespace, p.Name, p.UID) {
					v.moves = append(v.moves, a)
				}
			}
		}
	}
	return nil
}
