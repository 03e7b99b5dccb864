package world

import (
	"slices"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/shared/policy"
)

// Trouble is what keeps a policy that selects pods of the node from being applied as it is.
type Trouble struct {
	Policy   policy.PolicyRef
	UID      string         // of its own object, empty if that is not known
	Waits    string         // why its rules are not known, or not the newest; empty if they are
	Problems []apis.Problem // what of it was left out, or taken for something else
}

// Troubles returns the troubles with policies that select a pod of the node.
func (w *World) Troubles() []Trouble {
	w.mu.Lock()
	defer w.mu.Unlock()
	selecting := map[*policyState]struct{}{}
	for _, i := range w.idents {
		for p := range i.selected {
			selecting[p] = struct{}{}
		}
	}
	var all []Trouble
	for p := range selecting {
		c := w.content(p)
		if len(c.problems) == 0 {
			continue
		}
		t := Trouble{Policy: p.ref, UID: w.uid(p.ref), Waits: c.waits}
		for _, problem := range c.problems {
			if c.waits == "" || problem.Message != c.waits {
				t.Problems = append(t.Problems, problem)
			}
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Trouble) int { return refOf(a.Policy).Compare(refOf(b.Policy)) })
	return all
}

func refOf(ref policy.PolicyRef) apis.Ref {
	return apis.Ref{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

func (w *World) uid(ref policy.PolicyRef) string {
	if o := w.objects[refOf(ref)]; o != nil {
		return string(o.GetUID())
	}
	return ""
}

// PolicyUID returns the uid of a policy's own object, empty if it is not known.
func (w *World) PolicyUID(ref policy.PolicyRef) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uid(ref)
}
