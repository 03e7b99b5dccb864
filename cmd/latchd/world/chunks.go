package world

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

// chunk is an endpoints object, converted. What it says never changes: policies of many identifiers share it.
type chunk struct {
	name     string
	isolates [2]bool
	rules    [2][]policy.Rule
	egress   bool // it has rules for egress, though they may be malformed
	cluster  [2][]policy.ClusterRule
	rank     rank      // of cluster
	selector *selector // the copy that may be out of date, nil if it does not parse
	listed   map[podName]string
	local    []podName // of listed, those on this node
	lists    bool      // it lists a pod of its own namespace, on whatever node
	problems []apis.Problem
}

// rank is where a cluster policy stands in the order of evaluation.
type rank struct {
	tier     v1alpha1.Tier
	priority int32
}

func (r rank) String() string { return fmt.Sprintf("tier %s and priority %d", r.tier, r.priority) }

func (r rank) compare(o rank) int {
	return cmp.Or(cmp.Compare(r.tier, o.tier), cmp.Compare(r.priority, o.priority))
}

// parentOf names the policy that a PolicyEndpoint belongs to. Its policyRef has no kind; the owner
// references have. Without them the kind is that of the policy object that is there.
func (w *World) parentOf(o *v1alpha1.PolicyEndpoint) policy.PolicyRef {
	ref := policy.PolicyRef{Kind: apis.KindNetworkPolicy, Namespace: o.Namespace, Name: o.Spec.PolicyRef.Name}
	for _, owner := range o.OwnerReferences {
		switch owner.Kind {
		case apis.KindNetworkPolicy, apis.KindApplicationNetworkPolicy:
			ref.Kind = owner.Kind
			return ref
		}
	}
	application := ref
	application.Kind = apis.KindApplicationNetworkPolicy
	if w.hasObject(application) && !w.hasObject(ref) {
		return application
	}
	return ref
}

func (w *World) hasObject(ref policy.PolicyRef) bool {
	p := w.policies[ref]
	return p != nil && p.object
}

func clusterParentOf(o *v1alpha1.ClusterPolicyEndpoint) policy.PolicyRef {
	return policy.PolicyRef{Kind: apis.KindClusterNetworkPolicy, Name: o.Spec.PolicyRef.Name}
}

// reparent moves PolicyEndpoints without owner references to the kind of policy that is there now.
func (b *batch) reparent(ref policy.PolicyRef) {
	for _, kind := range []string{apis.KindNetworkPolicy, apis.KindApplicationNetworkPolicy} {
		p := b.policies[policy.PolicyRef{Kind: kind, Namespace: ref.Namespace, Name: ref.Name}]
		if p == nil || ref.Namespace == "" {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(p.chunks)) {
			object := apis.Ref{Kind: apis.KindPolicyEndpoint, Namespace: ref.Namespace, Name: name}
			if o, ok := b.objects[object].(*v1alpha1.PolicyEndpoint); ok && b.parentOf(o) != p.ref {
				b.upsertChunk(object, b.parentOf(o), p.chunks[name])
			}
		}
	}
}

// upsertChunk takes over an endpoints object.
func (b *batch) upsertChunk(ref apis.Ref, parent policy.PolicyRef, c *chunk) {
	if old := b.chunkOf[ref]; old != nil && old.ref != parent {
		b.removeChunk(ref)
	}
	p := b.policy(parent)
	if !p.object && b.complete[parent.Kind] {
		p.reappear(b.now)
	}
	old := p.chunks[ref.Name]
	switch {
	case old == nil && len(p.chunks) == 0:
		p.restart(b.now)
		fallthrough
	case old == nil || !sameContent(old, c):
		p.lastEvent = b.now
	}
	if old != nil && len(p.chunks) > 1 && takesAway(old, c) {
		p.leaving = append(p.leaving, leaving{old, b.now})
	}
	p.chunks[ref.Name] = c
	p.built = nil
	b.chunkOf[ref] = p
	b.relist(old, c)
	b.touchPolicy(p)
}

// removeChunk takes an endpoints object out of its policy.
func (b *batch) removeChunk(ref apis.Ref) {
	p := b.chunkOf[ref]
	if p == nil {
		return
	}
	old := p.chunks[ref.Name]
	if len(p.chunks) > 1 || p.object {
		p.leaving = append(p.leaving, leaving{old, b.now})
	}
	delete(p.chunks, ref.Name)
	delete(b.chunkOf, ref)
	p.lastEvent, p.built = b.now, nil
	b.relist(old, nil)
	b.touchPolicy(p)
}

// relist counts the local pods that endpoints objects list: without an object of their own they are pods
// by that.
func (b *batch) relist(old, c *chunk) {
	var changed []podName
	count := func(c *chunk, by int) {
		if c == nil {
			return
		}
		for _, name := range c.local {
			if b.listed[name] += by; b.listed[name] == 0 {
				delete(b.listed, name)
			}
			changed = append(changed, name)
		}
	}
	count(c, 1)
	count(old, -1)
	for _, name := range changed {
		if (b.listed[name] > 0) != (b.member[name] != nil) && b.pods[name] == nil {
			b.place(name)
		}
	}
}

// sameContent says whether two versions of an endpoints object have the same rules. Who is listed is not
// content: pods come and go all the time.
func sameContent(a, b *chunk) bool {
	return a.rank == b.rank && !takesAway(a, b) && !takesAway(b, a)
}

// takesAway says whether the new version of an endpoints object lacks something that the old one has.
func takesAway(old, c *chunk) bool {
	for _, d := range policy.Directions {
		if old.isolates[d] && !c.isolates[d] {
			return true
		}
		if lacks(c.rules[d], old.rules[d], ruleKey) || lacks(c.cluster[d], old.cluster[d], clusterKey) {
			return true
		}
	}
	return false
}

func lacks[R any](have, want []R, key func(R) string) bool {
	if len(want) == 0 {
		return false
	}
	keys := make(map[string]struct{}, len(have))
	for _, r := range have {
		keys[key(r)] = struct{}{}
	}
	return slices.ContainsFunc(want, func(r R) bool { _, ok := keys[key(r)]; return !ok })
}

// ruleKey is equal for equal rules only.
func ruleKey(r policy.Rule) string {
	key := r.Peer.Block.AppendTo(nil)
	for _, e := range r.Peer.Except {
		key = e.AppendTo(append(key, '-'))
	}
	if r.AllPorts {
		return string(append(key, '*'))
	}
	for _, p := range r.Ports {
		key = fmt.Appendf(key, " %d:%d-%d", p.Protocol, p.First, p.Last)
	}
	return string(key)
}

func clusterKey(r policy.ClusterRule) string {
	return string(rune('0'+r.Action)) + ruleKey(r.Rule)
}
