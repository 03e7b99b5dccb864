package world

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// Desired is what should hold for an identifier. Rules are shared between identifiers: do not change
// them.
type Desired struct {
	Identifier identity.Identifier
	Namespace  string
	Labels     map[string]string // nil if not known
	Pods       []PodRef          // on this node, sorted; empty while only what runs is left

	Create  policy.Input // for pods being created
	Running policy.Input // for pods that run

	// CreateKey and RunningKey are equal for equal inputs of one World, and change with them.
	CreateKey, RunningKey string
	SameRunning           bool      // Running is Create
	RunningAt             time.Time // when Running will be more than it is now, zero if it will not by itself
	HoldRunning           bool      // leave what runs as it is: it has rules of a pending policy

	Policies []policy.PolicyRef // that select the identifier, sorted
	Pending  []policy.PolicyRef // of these, the ones without endpoints objects
	Settling []policy.PolicyRef // of these, the ones that running pods wait for: a quiet time is to pass, or they are held
	Problems []apis.Problem     // with these policies
}

// Desired returns what should hold for an identifier now, and false if there is neither a pod of it nor
// anything running.
func (w *World) Desired(id identity.Identifier) (Desired, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.idents[id]
	if i == nil {
		return Desired{}, false
	}
	d := Desired{
		Identifier: id, Namespace: i.namespace, Labels: i.labels, Pods: w.refs(i),
		Create: w.empty(), Running: w.empty(),
	}
	var create, running []byte
	for _, p := range i.policies() {
		c := w.content(p)
		d.Policies = append(d.Policies, p.ref)
		if c.pending || c.vanished {
			d.Pending = append(d.Pending, p.ref)
		}
		d.HoldRunning = d.HoldRunning || w.holds(p, i)
		if i.running && w.settles(p, i) {
			d.Settling = append(d.Settling, p.ref)
		}
		d.Problems = append(d.Problems, c.problems...)
		create = add(&d.Create, create, c, [2]bool{true, true})
		if i.running {
			_, under := i.under[p]
			running = addRunning(&d.Running, running, c, i, under)
		}
	}
	if d.HoldRunning { // others wait with it
		d.Settling = slices.DeleteFunc(slices.Clone(d.Policies), func(ref policy.PolicyRef) bool { return slices.Contains(d.Pending, ref) })
	}
	for _, dir := range policy.Directions {
		d.RunningAt = earlier(d.RunningAt, i.isolation[dir].due)
	}
	d.CreateKey, d.RunningKey = string(create), string(running)
	if !i.running {
		d.Running, d.RunningKey = d.Create, d.CreateKey
	}
	d.SameRunning = d.CreateKey == d.RunningKey
	return d, true
}

// settles says whether running pods wait for more of a policy: for its isolation, or with rules that it
// has lost.
func (w *World) settles(p *policyState, i *ident) bool {
	for _, d := range policy.Directions {
		if !i.isolation[d].due.IsZero() && w.content(p).isolates(d) {
			return true
		}
	}
	return len(p.leaving) > 0 && !p.keepsLeaving()
}

// Problems returns what is wrong with objects, of all policies, and which are missing, sorted.
func (w *World) Problems() []apis.Problem {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []apis.Problem
	for _, p := range w.policies {
		out = append(out, w.content(p).problems...)
		if p.expired {
			out = append(out, apis.Problem{
				Object:  refString(p.ref),
				Message: "does not exist: its endpoints objects select nothing",
			})
		}
	}
	for _, p := range w.orphans() {
		out = append(out, apis.Problem{
			Object:  refString(p.ref),
			Message: "is not known, and the API server has not said that it does not exist: its endpoints objects stay in force",
		})
	}
	for name := range w.identsIn {
		if w.unknown(name) && len(w.policiesIn[""]) > 0 {
			out = append(out, apis.Problem{
				Object:  namespaceRef(name).String(),
				Message: "is not known: cluster policies select its pods by its name, or by listing them",
			})
		}
	}
	if !w.opts.PodsComplete && !w.synced.IsZero() {
		out = append(out, w.nowhere()...)
	}
	slices.SortFunc(out, apis.Problem.Compare)
	return slices.Compact(out)
}

// policies returns what selects the identifier, sorted.
func (i *ident) policies() []*policyState {
	out := make([]*policyState, 0, len(i.selected))
	for p := range i.selected {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *policyState) int {
		return cmp.Or(cmp.Compare(a.ref.Kind, b.ref.Kind), cmp.Compare(a.ref.Namespace, b.ref.Namespace), cmp.Compare(a.ref.Name, b.ref.Name))
	})
	return out
}

// empty is the input that no policy adds to.
func (w *World) empty() policy.Input {
	if w.opts.Mode == Strict {
		return policy.Input{Default: [2]policy.Verdict{policy.Deny, policy.Deny}}
	}
	return policy.Input{Default: [2]policy.Verdict{policy.Allow, policy.Allow}}
}

// add adds a policy to an input, in the directions of mask, and to the key of the input. Letters of
// directions are upper case, as those of a version in base 36 are not: two inputs with one key would
// be compiled as one.
func add(in *policy.Input, key []byte, c *content, mask [2]bool) []byte {
	key = strconv.AppendUint(key, c.version, 36)
	if c.policy.Ref == (policy.PolicyRef{}) {
		in.Cluster = append(in.Cluster, c.cluster...)
		return append(key, ' ')
	}
	p := c.policy
	for _, d := range policy.Directions {
		if p.Isolates[d] && !mask[d] {
			p.Isolates[d] = false
			key = append(key, "IE"[d])
		}
	}
	in.Policies = append(in.Policies, p)
	return append(key, ' ')
}

// addRunning leaves out what does not hold for running pods yet.
func addRunning(in *policy.Input, key []byte, c *content, i *ident, under bool) []byte {
	if c.pending && c.policy.Ref == (policy.PolicyRef{}) && !under {
		return key // a cluster policy without rules denies only what was created under it
	}
	return add(in, key, c, [2]bool{i.isolation[policy.Ingress].inForce, i.isolation[policy.Egress].inForce})
}
