package world

import (
	"fmt"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

// policyState is everything about one policy: its own object and its endpoints objects, of which either
// may be missing.
type policyState struct {
	ref policy.PolicyRef

	object   bool      // the policy's own object is known
	seen     bool      // it is or was
	absent   time.Time // since when neither it nor word of it has come
	expired  bool      // D16: what is left selects nothing
	selector *selector // of the object, also when it is gone; nil if it never was or does not parse
	own      ownPolicy

	chunks     map[string]*chunk // endpoints objects by name
	leaving    []leaving
	lastEvent  time.Time // change of content
	everListed map[podUID]struct{}
	built      *content // nil when it has to be built again
}

// ownPolicy is what the policy's own object says besides its selector.
type ownPolicy struct {
	ref      policy.PolicyRef
	selector *selector
	isolates [2]bool // by its types, or their default; of a cluster policy the directions with Deny rules
	rank     rank    // of a cluster policy
	problems []apis.Problem
}

// leaving is an earlier version of an endpoints object whose rules stay in force for now.
type leaving struct {
	chunk *chunk
	since time.Time
}

func ofNetworkPolicy(o *networkingv1.NetworkPolicy) ownPolicy {
	ref := policy.PolicyRef{Kind: apis.KindNetworkPolicy, Namespace: o.Namespace, Name: o.Name}
	return namespacedPolicy(ref, &o.Spec.PodSelector, o.Spec.PolicyTypes, len(o.Spec.Egress) > 0)
}

func ofApplicationNetworkPolicy(o *v1alpha1.ApplicationNetworkPolicy) ownPolicy {
	ref := policy.PolicyRef{Kind: apis.KindApplicationNetworkPolicy, Namespace: o.Namespace, Name: o.Name}
	return namespacedPolicy(ref, &o.Spec.PodSelector, o.Spec.PolicyTypes, len(o.Spec.Egress) > 0)
}

func namespacedPolicy(ref policy.PolicyRef, s *metav1.LabelSelector, types []networkingv1.PolicyType, egressRules bool) ownPolicy {
	out := ownPolicy{ref: ref}
	out.setSelector(podSelector(s))
	if len(types) == 0 { // the API's default
		out.isolates = [2]bool{policy.Ingress: true, policy.Egress: egressRules}
		return out
	}
	c := converter{object: refString(ref)}
	out.isolates = c.isolation("spec.policyTypes", types)
	out.problems = append(out.problems, c.done()...)
	return out
}

func ofClusterNetworkPolicy(o *v1alpha1.ClusterNetworkPolicy) ownPolicy {
	out := ownPolicy{
		ref:  policy.PolicyRef{Kind: apis.KindClusterNetworkPolicy, Name: o.Name},
		rank: rank{o.Spec.Tier, o.Spec.Priority},
	}
	out.setSelector(subjectSelector(&o.Spec.Subject))
	c := converter{object: refString(out.ref)}
	c.rank(out.rank)
	out.isolates = [2]bool{
		policy.Ingress: c.denies("spec.ingress", o.Spec.Ingress),
		policy.Egress:  c.denies("spec.egress", o.Spec.Egress),
	}
	out.problems = append(out.problems, c.done()...)
	return out
}

func (o *ownPolicy) setSelector(s *selector, err error) {
	o.selector = s
	if err != nil {
		o.problems = append(o.problems, apis.Problem{
			Object: refString(o.ref), Field: "spec",
			Message: fmt.Sprintf("%v; its endpoints objects decide which pods it selects", err),
		})
	}
}

func refString(ref policy.PolicyRef) string {
	return refOf(ref).String()
}

// policy returns the state of a policy, a new one if there is none.
func (b *batch) policy(ref policy.PolicyRef) *policyState {
	p := b.policies[ref]
	if p == nil {
		p = &policyState{ref: ref, absent: b.now, chunks: map[string]*chunk{}, everListed: map[podUID]struct{}{}}
		if _, ok := b.seen[ref]; ok {
			p.seen = true
		}
		b.policies[ref] = p
		if b.policiesIn[ref.Namespace] == nil {
			b.policiesIn[ref.Namespace] = map[*policyState]struct{}{}
		}
		b.policiesIn[ref.Namespace][p] = struct{}{}
	}
	b.schedule(p)
	return p
}

// drop forgets a policy of which nothing is left. That it once had an object is remembered: endpoints
// objects that turn up later have outlived it.
func (b *batch) drop(p *policyState) {
	for _, i := range b.idents {
		if _, was := i.selected[p]; was {
			b.touch(i)
		}
	}
	if p.seen && !b.complete[p.ref.Kind] {
		b.seen[p.ref] = struct{}{}
	}
	delete(b.policies, p.ref)
	delete(b.timed, p)
	delete(b.policiesIn[p.ref.Namespace], p)
	if len(b.policiesIn[p.ref.Namespace]) == 0 {
		delete(b.policiesIn, p.ref.Namespace)
	}
}

// upsertPolicy takes over a policy's own object.
func (b *batch) upsertPolicy(own ownPolicy) {
	p := b.policy(own.ref)
	if !p.object {
		p.restart(b.now)
	} else if p.own.equal(&own) {
		return
	}
	p.object, p.seen, p.expired, p.own = true, true, false, own
	p.selector = own.selector
	p.lastEvent, p.built = b.now, nil
	delete(b.seen, own.ref)
	b.reparent(own.ref)
	b.touchPolicy(p)
}

func (o *ownPolicy) equal(n *ownPolicy) bool {
	return o.selector.equal(n.selector) && o.isolates == n.isolates && o.rank == n.rank && slices.Equal(o.problems, n.problems)
}

// deletePolicy notes that a policy's own object is gone.
func (b *batch) deletePolicy(ref apis.Ref) {
	p := b.policies[policy.PolicyRef{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}]
	if p == nil || !p.object {
		return
	}
	p.object, p.absent, p.built = false, b.now, nil
	b.reparent(p.ref)
	b.touchPolicy(p)
}

// restart gives leaving rules a new time to wait, when the reason to keep them for good is over.
func (p *policyState) restart(now time.Time) {
	for i := range p.leaving {
		p.leaving[i].since = now
	}
}

// keepsLeaving says that leaving rules have no time: the policy goes as a whole or not at all.
func (p *policyState) keepsLeaving() bool {
	if p.object {
		return len(p.chunks) == 0 // the controller's objects vanished
	}
	return p.seen // they are being collected one by one
}

func (p *policyState) leavingDue(l leaving, o Options) time.Time {
	if p.keepsLeaving() {
		return time.Time{}
	}
	return p.quietAt(l.since, o)
}

// quietAt returns when the policy has been quiet long enough for something that waits since a time.
func (p *policyState) quietAt(since time.Time, o Options) time.Time {
	return earlier(p.lastEvent.Add(o.Quiet), since.Add(o.QuietMax))
}

// reappear takes endpoints objects that an API server tells of for the first word of a policy. The
// controller writes them only for a policy that is there, whatever the watch of the policies says.
func (p *policyState) reappear(now time.Time) {
	p.absent, p.expired = now, false
	if p.seen { // created again under its name
		p.seen, p.selector, p.own = false, nil, ownPolicy{}
		p.restart(now)
	}
}

// graceEnd returns when the policy has been without its own object for longer than watches are out of step
// with each other, or zero if that does not matter.
func (p *policyState) graceEnd(w *World) time.Time {
	if p.object || p.expired || len(p.chunks) == 0 || w.synced.IsZero() || !p.seen && !w.complete[p.ref.Kind] {
		return time.Time{}
	}
	return later(p.absent, w.synced).Add(w.opts.UnorderedGrace)
}

// expiry returns when what is left of the policy selects nothing any more by itself (D16), or zero. Where
// there is an API server to ask, that is never: see Orphans.
func (p *policyState) expiry(w *World) time.Time {
	if w.complete[p.ref.Kind] {
		return time.Time{}
	}
	return p.graceEnd(w)
}

// due returns when something of the policy changes by itself, or zero.
func (p *policyState) due(w *World) time.Time {
	next := p.expiry(w)
	for _, l := range p.leaving {
		next = earlier(next, p.leavingDue(l, w.opts))
	}
	return next
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
