package reconcile

import (
	"time"

	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
)

// Observer is told what happens. Nil functions are not called; the others must not block, and are
// called by several goroutines.
type Observer struct {
	Reconciled func(took time.Duration, err error)               // one run for one identifier
	InForce    func(waited time.Duration)                        // the kernel got other rules, so long after the change was known
	Prepared   func(waited time.Duration)                        // a pod can be started, so long after it was known
	Attached   func(took time.Duration)                          // a pod was started: from the intent to be in force
	Diverged   func(what string)                                 // the kernel or the records were not as they should be; mended
	Repaired   func(id identity.Identifier, what enforce.Repair) // of the kernel, for an identifier
	Audited    func(took time.Duration, err error)               // one round of the audit
	Rules      func(id identity.Identifier, amount int)          // entries of an identifier's rules; 0 when it is given back
}

// Observe sets the observer. Call it before anything is enqueued.
func (r *Reconciler) Observe(o Observer) { r.observer = o }

// progress is what is known about identifiers on their way. The reconciler's lock guards it.
type progress struct {
	changed  map[identity.Identifier]time.Time // enqueued for a change, since the last run that went well
	running  map[identity.Identifier]run
	adopting map[identity.Identifier]bool // taken over and not yet run for
	adopted  bool                         // Adopt has been called
	audited  time.Time                    // end of the last round of the audit
}

// run is one run for an identifier.
type run struct {
	began   time.Time
	changed time.Time // zero: nothing is known to have changed
}

func newProgress() progress {
	return progress{changed: map[identity.Identifier]time.Time{}, running: map[identity.Identifier]run{}, adopting: map[identity.Identifier]bool{}}
}

// noteChange remembers since when something is to be done for identifiers.
func (r *Reconciler) noteChange(ids []identity.Identifier) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if _, ok := r.progress.changed[id]; !ok {
			r.progress.changed[id] = now
		}
	}
}

// hasChanged tells whether something is to be done for an identifier, other than to verify it. The queue
// calls it under its own lock.
func (r *Reconciler) hasChanged(id identity.Identifier) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.progress.changed[id]
	return ok
}

func (r *Reconciler) begin(id identity.Identifier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress.running[id] = run{began: time.Now(), changed: r.progress.changed[id]}
	delete(r.progress.changed, id)
}

func (r *Reconciler) end(id identity.Identifier, err error) {
	r.mu.Lock()
	done := r.progress.running[id]
	delete(r.progress.running, id)
	delete(r.progress.adopting, id)
	if err != nil && !done.changed.IsZero() {
		r.progress.changed[id] = done.changed
	}
	r.mu.Unlock()
	if r.observer.Reconciled != nil {
		r.observer.Reconciled(time.Since(done.began), err)
	}
}

// waited calls one of the observer's functions with the time since the change that this run is for.
func (r *Reconciler) waited(id identity.Identifier, tell func(time.Duration)) {
	r.mu.Lock()
	changed := r.progress.running[id].changed
	r.mu.Unlock()
	if tell != nil && !changed.IsZero() {
		tell(time.Since(changed))
	}
}

func (r *Reconciler) diverged(what string) {
	if r.observer.Diverged != nil {
		r.observer.Diverged(what)
	}
}

func (r *Reconciler) auditEnded(began time.Time, err error) {
	r.mu.Lock()
	r.progress.audited = time.Now()
	r.mu.Unlock()
	if r.observer.Audited != nil {
		r.observer.Audited(time.Since(began), err)
	}
}

// Progress is how far the reconciler is.
type Progress struct {
	Adopted bool          // there was a run for everything that was found at the start; Errors tells which failed
	Queue   int           // identifiers that wait for a worker
	Oldest  time.Duration // age of the oldest change that is not in force yet; 0 = none
	Longest time.Duration // how long the longest of the running runs takes by now; 0 = none
	Audited time.Time     // when the last round of the audit ended
}

// Progress tells how far the reconciler is. Safe to call at any time.
func (r *Reconciler) Progress() Progress {
	queue := r.queue.Len() // before the lock, which the queue takes
	r.mu.Lock()
	defer r.mu.Unlock()
	p := Progress{Adopted: r.progress.adopted && len(r.progress.adopting) == 0, Queue: queue, Audited: r.progress.audited}
	for _, changed := range r.progress.changed {
		p.Oldest = max(p.Oldest, time.Since(changed))
	}
	for _, run := range r.progress.running {
		p.Longest = max(p.Longest, time.Since(run.began))
		if !run.changed.IsZero() {
			p.Oldest = max(p.Oldest, time.Since(run.changed))
		}
	}
	return p
}

// Behind tells for which identifiers a change is not in force, and since when it is known.
func (r *Reconciler) Behind() map[identity.Identifier]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	behind := make(map[identity.Identifier]time.Time, len(r.progress.changed))
	for id, changed := range r.progress.changed {
		behind[id] = changed
	}
	for id, run := range r.progress.running {
		if was, ok := behind[id]; !run.changed.IsZero() && (!ok || run.changed.Before(was)) {
			behind[id] = run.changed
		}
	}
	return behind
}
