package reconcile

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/latch-cni/latch/shared/identity"
)

// tellAgain is how long an error that stays the same is not told again: a policy that is too large fails
// with each try until somebody edits it.
const tellAgain = 10 * time.Minute

// told remembers what was told of identifiers whose runs fail.
type told struct {
	mu sync.Mutex
	of map[identity.Identifier]telling
}

type telling struct {
	text string
	at   time.Time
}

// isNews tells whether an error is to be told, and takes it for told then.
func (t *told) isNews(id identity.Identifier, text string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := t.of[id]; last.text == text && now.Sub(last.at) < tellAgain {
		return false
	}
	if t.of == nil {
		t.of = map[identity.Identifier]telling{}
	}
	t.of[id] = telling{text, now}
	return true
}

// forget makes everything news again.
func (t *told) forget(id identity.Identifier) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, id)
}

// tellFailure logs why a run failed, for which pods, unless that is known.
func (r *Reconciler) tellFailure(id identity.Identifier, err error) {
	if !r.told.isNews(id, err.Error(), time.Now()) {
		return
	}
	d, _ := r.world.Desired(id)
	var policies []string
	for _, p := range d.Policies {
		policies = append(policies, p.String())
	}
	r.log.Error("reconcile", "pods", r.PodsOf(id), "policies", some(policies), "identifier", id, "error", err, "retries", r.queue.NumRequeues(id))
}

// PodsOf names the pods of an identifier on this node for people, not all if there are many.
func (r *Reconciler) PodsOf(id identity.Identifier) string {
	d, _ := r.world.Desired(id)
	var names []string
	for _, p := range d.Pods {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	if len(names) == 0 {
		return "no pod"
	}
	return some(names)
}

// some lists the first few of many names.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
