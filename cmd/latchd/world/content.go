package world

import (
	"fmt"
	"maps"
	"slices"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

// content is what a policy says at the moment, merged from its endpoints objects. It is shared by all
// identifiers that the policy selects.
type content struct {
	version  uint64 // unlike that of any other content of this World
	pending  bool   // rules are not known
	vanished bool   // rules are the last ones known
	waits    string // why, if either
	policy   policy.Policy
	cluster  []policy.ClusterPolicy // of a cluster policy: one of each rank that its endpoints objects have
	problems []apis.Problem
}

// isolates says whether the policy isolates a direction, which a cluster policy never does.
func (c *content) isolates(d policy.Direction) bool { return c.policy.Isolates[d] }

// content returns the merged content, built again if something changed.
func (w *World) content(p *policyState) *content {
	if p.built == nil {
		w.versions++
		p.built = p.build(w.versions)
	}
	return p.built
}

// sorted returns the endpoints objects in the order of their names.
func (p *policyState) sorted() []*chunk {
	out := make([]*chunk, 0, len(p.chunks))
	for _, name := range slices.Sorted(maps.Keys(p.chunks)) {
		out = append(out, p.chunks[name])
	}
	return out
}

func (p *policyState) build(version uint64) *content {
	c := &content{version: version, pending: len(p.chunks) == 0 && len(p.leaving) == 0}
	c.vanished = len(p.chunks) == 0 && !c.pending
	c.problems = slices.Clone(p.own.problems)
	chunks := p.sorted()
	for _, k := range chunks {
		c.problems = append(c.problems, k.problems...)
	}
	for _, l := range p.leaving {
		chunks = append(chunks, l.chunk)
	}
	if c.pending || c.vanished {
		c.waits = "has no endpoints objects: pods being created are isolated without rules"
		if c.vanished {
			c.waits = "lost its endpoints objects: the last rules stay in force"
		}
		c.problems = append(c.problems, apis.Problem{Object: refString(p.ref), Message: c.waits})
	}
	if p.ref.Kind == apis.KindClusterNetworkPolicy {
		p.buildCluster(c, chunks)
		return c
	}
	c.policy.Ref = p.ref
	for _, d := range policy.Directions {
		lists := make([]*[]policy.Rule, 0, len(chunks))
		for _, k := range chunks {
			c.policy.Isolates[d] = c.policy.Isolates[d] || k.isolates[d]
			lists = append(lists, &k.rules[d])
		}
		c.policy.Rules[d] = union(lists, len(p.leaving) > 0, ruleKey)
	}
	if c.policy.Isolates == ([2]bool{}) {
		c.policy.Isolates = p.isolatesByDefault(chunks)
	}
	return c
}

// isolatesByDefault are the directions that a policy isolates while no endpoints object names any: there is none, or
// the policy has no types, which the controller hands on as it is. Without the policy's own object they are the
// API's default for the rules that there are.
func (p *policyState) isolatesByDefault(chunks []*chunk) [2]bool {
	if p.own.ref == p.ref {
		return p.own.isolates
	}
	return [2]bool{policy.Ingress: true, policy.Egress: slices.ContainsFunc(chunks, func(k *chunk) bool { return k.egress })}
}

// buildCluster ranks rules as the endpoints object that they are in does, not as the policy's own object, which
// may be edited long before its endpoints objects follow: at their new rank the old rules would say what neither
// version says.
func (p *policyState) buildCluster(c *content, chunks []*chunk) {
	report := func(format string, args ...any) {
		c.problems = append(c.problems, apis.Problem{Object: refString(p.ref), Message: fmt.Sprintf(format, args...)})
	}
	if c.pending {
		denies := &chunk{rank: p.own.rank}
		for _, d := range policy.Directions {
			if p.own.isolates[d] {
				denies.cluster[d] = denyAll()
			}
		}
		chunks = []*chunk{denies}
	}
	byRank := map[rank][]*chunk{}
	for _, k := range chunks {
		byRank[k.rank] = append(byRank[k.rank], k)
	}
	for _, r := range slices.SortedFunc(maps.Keys(byRank), rank.compare) {
		cluster := policy.ClusterPolicy{Ref: p.ref}
		for _, d := range policy.Directions {
			lists := make([]*[]policy.ClusterRule, 0, len(byRank[r]))
			for _, k := range byRank[r] {
				lists = append(lists, &k.cluster[d])
			}
			cluster.Rules[d] = union(lists, len(p.leaving) > 0, clusterKey)
		}
		r.of(&cluster)
		c.cluster = append(c.cluster, cluster)
	}
	for _, k := range p.sorted() {
		if p.object && k.rank != p.own.rank {
			c.waits = fmt.Sprintf("has %s, but %s in endpoints objects: that counts until they are written anew", p.own.rank, k.rank)
			report("%s", c.waits)
			break
		}
	}
}

// of puts a cluster policy into the tier and to the priority of a rank. Where one is not known no other rule may come
// first: of its rules those that deny count, and those that pass, instead of which others would decide, deny.
func (r rank) of(c *policy.ClusterPolicy) {
	c.Tier, c.Priority = policy.TierAdmin, int(r.priority)
	if r.tier == v1alpha1.TierBaseline {
		c.Tier = policy.TierBaseline
	}
	if r.check(func(string, error) {}) {
		return
	}
	c.Priority = 0
	for _, d := range policy.Directions {
		var denies []policy.ClusterRule
		for _, rule := range c.Rules[d] {
			if rule.Action != policy.ActionAccept {
				rule.Action = policy.ActionDeny
				denies = append(denies, rule)
			}
		}
		c.Rules[d] = denies
	}
}

// denyAll is what stands for the unknown Deny rules of a cluster policy.
func denyAll() []policy.ClusterRule {
	var rules []policy.ClusterRule
	for _, block := range everywhere {
		rules = append(rules, policy.ClusterRule{
			Rule:   policy.Rule{Peer: policy.Peer{Block: block}, AllPorts: true},
			Action: policy.ActionDeny,
		})
	}
	return rules
}

// union joins lists of rules. With old versions among them most rules are there twice: they are dropped. Else
// the lists become parts of what is returned, so that nothing is held twice.
func union[R any](lists []*[]R, unique bool, key func(R) string) []R {
	if len(lists) == 1 {
		return *lists[0]
	}
	total := 0
	for _, l := range lists {
		total += len(*l)
	}
	out := make([]R, 0, total)
	for _, l := range lists {
		first := len(out)
		out = append(out, *l...)
		if !unique {
			*l = slices.Clip(out[first:])
		}
	}
	if !unique {
		return out
	}
	seen := make(map[string]struct{}, len(out))
	return slices.DeleteFunc(out, func(r R) bool {
		k := key(r)
		_, twice := seen[k]
		seen[k] = struct{}{}
		return twice
	})
}
