package reconcile

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// publish writes the records of the identifier's pods, and deletes those of pods that left it and
// went nowhere.
func (r *Reconciler) publish(d world.Desired) error {
	for _, p := range d.Pods {
		rec := state.PodRecord{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Identifier: d.Identifier, Labels: d.Labels}
		old, err := r.store.ReadPod(p.Namespace, p.Name)
		if err == nil && old.UID == rec.UID && old.Identifier == rec.Identifier && maps.Equal(old.Labels, rec.Labels) {
			r.setPublished(p.Namespace, p.Name, publication{d.Identifier, p.UID})
			continue
		}
		rec.PublishedAt = time.Now()
		if err := r.store.WritePod(rec); err != nil {
			return err
		}
		r.waited(d.Identifier, r.observer.Prepared)
		r.setPublished(p.Namespace, p.Name, publication{d.Identifier, p.UID})
	}
	return r.withdraw(d.Identifier, d.Pods)
}

// withdraw deletes the records of pods that were published under an identifier and are not among the
// ones that have it now, unless they have been published under another since.
func (r *Reconciler) withdraw(id identity.Identifier, now []world.PodRef) error {
	has := map[podKey]bool{}
	for _, p := range now {
		has[podKey{p.Namespace, p.Name}] = true
	}
	r.mu.Lock()
	var gone []podKey
	for p := range r.of[id] {
		if !has[p] && r.pods[p].id == id && !r.world.HasPod(p.namespace, p.name) {
			gone = append(gone, p)
		}
	}
	r.mu.Unlock()
	for _, p := range gone {
		rec, err := r.store.ReadPod(p.namespace, p.name)
		if err == nil && rec.Identifier == id {
			err = r.store.DeletePod(p.namespace, p.name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.leaves(p, id) // what runs of it keeps these rules until DEL, or until the pod is known again
		r.unpublish(p)
	}
	return nil
}

// published tells what a pod was published as last, by this process or an earlier one.
func (r *Reconciler) published(namespace, name string) (publication, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.pods[podKey{namespace, name}]
	return was, ok
}

func (r *Reconciler) setPublished(namespace, name string, now publication) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := podKey{namespace, name}
	r.leave(p)
	r.pods[p] = now
	if r.of[now.id] == nil {
		r.of[now.id] = map[podKey]bool{}
	}
	r.of[now.id][p] = true
}

func (r *Reconciler) unpublish(p podKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave(p)
	delete(r.pods, p)
}

// leaves notes that attachments of a pod may be bound to an identifier that it is not published under.
func (r *Reconciler) leaves(p podKey, id identity.Identifier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left[p] == nil {
		r.left[p] = map[identity.Identifier]bool{}
	}
	r.left[p][id] = true
}

// leftAt returns where attachments of a pod may be bound, besides where it is published.
func (r *Reconciler) leftAt(namespace, name string) map[identity.Identifier]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.left[podKey{namespace, name}])
}

// findLeft notes where attachments are bound, forgets what was noted of others, and returns the
// identifiers of pods that are published elsewhere.
func (r *Reconciler) findLeft(atts []state.Attachment) (stale []identity.Identifier) {
	left := map[podKey]map[identity.Identifier]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range atts {
		p := podKey{a.PodNamespace, a.PodName}
		if left[p] == nil {
			left[p] = map[identity.Identifier]bool{}
		}
		left[p][a.Identifier] = true
		if now, ok := r.pods[p]; ok && now.id != a.Identifier && isOf(a, p.namespace, p.name, now.uid) {
			stale = append(stale, now.id)
		}
	}
	r.left = left
	return stale
}

// leave takes a pod from those of the identifier that it is published under. The lock is held.
func (r *Reconciler) leave(p podKey) {
	id := r.pods[p].id
	delete(r.of[id], p)
	if len(r.of[id]) == 0 {
		delete(r.of, id)
	}
}

// earlier tells what an earlier run may have left in force for what runs. Of a policy without endpoints
// objects that was its isolation alone, or the last rules it had: then they are among the sources.
func earlier(rec state.IdentifierRecord) (e world.Earlier) {
	for _, ref := range rec.Policies {
		if !slices.Contains(rec.Pending, ref) {
			e.Policies = append(e.Policies, ref)
		}
	}
	for _, s := range rec.Running.Sources {
		if s.Isolation {
			e.Isolates[s.Direction] = true
		} else if !slices.Contains(e.Policies, s.Policy) {
			e.Policies = append(e.Policies, s.Policy)
		}
	}
	return e
}

// Adopt takes over what an earlier run left: it remembers which pods are published, asks for every
// identifier that has a record or attachments to be reconciled and verified, and returns how many
// there are. Call it before Run, when the world is synced.
func (r *Reconciler) Adopt() (int, error) {
	pods, err := r.store.ListPods()
	errs := []error{err}
	ids := map[identity.Identifier]bool{}
	for _, p := range pods {
		r.setPublished(p.Namespace, p.Name, publication{p.Identifier, p.UID})
		ids[p.Identifier] = true
	}
	recs, err := r.store.ListIdentifiers()
	errs = append(errs, err)
	for _, rec := range recs {
		r.world.Adopt(rec.Identifier, rec.Namespace, rec.Labels, earlier(rec))
		r.unread.adopt(r.world, rec)
		ids[rec.Identifier] = true
	}
	atts, err := r.store.ListAttachments()
	errs = append(errs, err)
	for _, a := range atts {
		ids[a.Identifier] = true
	}
	for _, id := range r.findLeft(atts) {
		ids[id] = true
	}
	for _, id := range r.world.Identifiers() {
		ids[id] = true
	}
	r.mu.Lock()
	r.progress.adopting, r.progress.adopted = maps.Clone(ids), true
	r.mu.Unlock()
	r.verifyAll(ids)
	return len(ids), errors.Join(errs...)
}
