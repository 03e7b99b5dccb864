package world

import (
	"slices"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// Orphans returns the policies of a kind that are complete but for their own object, which is missing for
// longer than watches are out of step with each other, and that select something here; sorted. They stay
// in force until Gone: that an object was not delivered does not say that it is not there.
func (w *World) Orphans(kind string) []apis.Ref {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []apis.Ref
	for _, p := range w.orphans() {
		if p.ref.Kind == kind {
			out = append(out, refOf(p.ref))
		}
	}
	slices.SortFunc(out, apis.Ref.Compare)
	return out
}

// Gone says that an API server that was asked for the object of a policy, at a time or later, does not
// have it, and returns the identifiers affected. It changes nothing if the object, or word of it, has come
// since.
func (w *World) Gone(ref apis.Ref, asked time.Time) []identity.Identifier {
	return w.change(func(b *batch) {
		p := b.policies[policy.PolicyRef{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}]
		if p != nil && isOver(p.graceEnd(w), asked) {
			p.expired, p.built = true, nil
			b.touchPolicy(p)
		}
	})
}

func (w *World) orphans() []*policyState {
	var out []*policyState
	now := w.opts.Now()
	for _, p := range w.policies {
		if w.complete[p.ref.Kind] && isOver(p.graceEnd(w), now) && w.isSelecting(p) {
			out = append(out, p)
		}
	}
	return out
}

func (w *World) isSelecting(p *policyState) bool {
	for _, i := range w.idents {
		if _, ok := i.selected[p]; ok {
			return true
		}
	}
	return false
}
