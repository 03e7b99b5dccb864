package policy

import "slices"

// class is all rules of one source: they differ in their peers only.
type class struct {
	source Source
	spans  []span
	group  int32
}

// event says that inside block, step instances of class apply more than around it: 1 at the block
// of a rule, -1 at its exceptions.
type event struct {
	block block
	class int32
	step  int8
}

// ruleset is the input of one direction, resolved into classes and events.
type ruleset struct {
	classes   []class // in the order of evaluation
	groups    int     // classes of one tier and port list are a group: its first active class wins
	events    []event // sorted by block
	isolation *Source // nil if no policy isolates the direction
	fallback  Verdict // the default of the enforcing mode
}

type classKey struct {
	tier     Tier
	priority int
	ref      int
	action   Action
	ports    int
}

type groupKey struct {
	tier  Tier
	ports int
}

// gatherer builds a ruleset.
type gatherer struct {
	ruleset
	direction Direction
	ports     *portLists
	refs      map[PolicyRef]int
	byKey     map[classKey]int32
	byGroup   map[groupKey]int32
	buf       []block
}

// gather reads the rules of one direction. Rules of policies that do not isolate it are ignored,
// and Baseline rules make no events if any does.
func gather(in *Input, d Direction, ports *portLists) *ruleset {
	g := gatherer{
		ruleset:   ruleset{fallback: in.Default[d]},
		direction: d,
		ports:     ports,
		refs:      make(map[PolicyRef]int),
		byKey:     make(map[classKey]int32),
		byGroup:   make(map[groupKey]int32),
	}
	if ref := isolating(in, d); ref != nil {
		g.isolation = isolationSource(*ref, d)
	}
	g.events = make([]event, 0, countEvents(in, d))
	for i := range in.Policies {
		p := &in.Policies[i]
		if !p.Isolates[d] {
			continue
		}
		key := classKey{tier: TierNetworkPolicy, ref: g.ref(p.Ref), action: ActionAccept}
		for n := range p.Rules[d] {
			g.add(key, p.Ref, n, &p.Rules[d][n], true)
		}
	}
	for i := range in.Cluster {
		p := &in.Cluster[i]
		if !p.inTier() {
			continue
		}
		live := p.Tier == TierAdmin || g.isolation == nil
		key := classKey{tier: p.Tier, priority: p.Priority, ref: g.ref(p.Ref)}
		for n := range p.Rules[d] {
			r := &p.Rules[d][n]
			key.action = r.Action
			g.add(key, p.Ref, n, &r.Rule, live)
		}
	}
	g.sort()
	return &g.ruleset
}

// inTier tells whether a cluster policy is in one of the tiers it can be in.
func (p *ClusterPolicy) inTier() bool { return p.Tier == TierAdmin || p.Tier == TierBaseline }

// isolating returns the first policy in canonical order that isolates the direction, or nil.
func isolating(in *Input, d Direction) *PolicyRef {
	var first *PolicyRef
	for i := range in.Policies {
		p := &in.Policies[i]
		if p.Isolates[d] && (first == nil || compareRefs(p.Ref, *first) < 0) {
			first = &p.Ref
		}
	}
	return first
}

func isolationSource(ref PolicyRef, d Direction) *Source {
	return &Source{Policy: ref, Tier: TierNetworkPolicy, Direction: d, Action: ActionDeny, Isolation: true}
}

func countEvents(in *Input, d Direction) int {
	n := 0
	for i := range in.Policies {
		for j := range in.Policies[i].Rules[d] {
			n += 1 + len(in.Policies[i].Rules[d][j].Peer.Except)
		}
	}
	for i := range in.Cluster {
		n += len(in.Cluster[i].Rules[d])
	}
	return n
}

func (g *gatherer) ref(r PolicyRef) int {
	n, ok := g.refs[r]
	if !ok {
		n = len(g.refs)
		g.refs[r] = n
	}
	return n
}

// add puts rule number n of a policy into its class. A rule that matches nothing makes no class.
func (g *gatherer) add(key classKey, ref PolicyRef, n int, r *Rule, live bool) {
	if key.action > ActionPass {
		return
	}
	list := g.ports.of(r)
	if list == nil {
		return
	}
	b, except, ok := resolvePeer(&r.Peer, key.action, g.buf[:0])
	if !ok {
		return
	}
	g.buf = except
	key.ports = list.index
	c := g.class(key, ref, n, list)
	if !live {
		return
	}
	g.events = append(g.events, event{block: b, class: c, step: 1})
	for _, x := range except {
		g.events = append(g.events, event{block: x, class: c, step: -1})
	}
}

func (g *gatherer) class(key classKey, ref PolicyRef, n int, list *portList) int32 {
	if c, ok := g.byKey[key]; ok {
		s := &g.classes[c].source
		s.Rule = min(s.Rule, n)
		return c
	}
	gk := groupKey{key.tier, key.ports}
	group, ok := g.byGroup[gk]
	if !ok {
		group = int32(len(g.byGroup))
		g.byGroup[gk] = group
	}
	c := int32(len(g.classes))
	g.byKey[key] = c
	g.classes = append(g.classes, class{
		source: Source{
			Policy: ref, Tier: key.tier, Priority: key.priority, Direction: g.direction,
			Action: key.action, Ports: list.text, Rule: n,
		},
		spans: list.spans,
		group: group,
	})
	return c
}

// sort brings the classes into the order of evaluation, so that a lower index wins, and the events
// into the order of the walk.
func (g *gatherer) sort() {
	g.groups = len(g.byGroup)
	order := make([]int32, len(g.classes))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return compareSources(&g.classes[a].source, &g.classes[b].source)
	})
	rank := make([]int32, len(order))
	sorted := make([]class, len(order))
	for i, c := range order {
		rank[c] = int32(i)
		sorted[i] = g.classes[c]
	}
	g.classes = sorted
	for i := range g.events {
		g.events[i].class = rank[g.events[i].class]
	}
	slices.SortFunc(g.events, func(a, b event) int { return a.block.compare(b.block) })
}
