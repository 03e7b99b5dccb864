package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Match is a rule that matches a packet, whether or not it came to decide.
type Match struct {
	Source  Source       // Source.Rule is the index of this very rule in its policy
	Block   netip.Prefix // the rule's block
	Decides bool
}

// Explanation says which tier and rule decide a packet, and what else was there to decide it.
type Explanation struct {
	Direction Direction
	Remote    netip.Addr
	Protocol  Protocol
	Port      uint16

	Verdict  Verdict
	Tier     Tier   // that decides
	Decision Source // zero if Tier is TierDefault; of an isolation, the first isolating policy

	Isolating []PolicyRef // policies that isolate the direction, in canonical order
	Matches   []Match     // in the order of evaluation; Baseline ones also if they are not asked
}

// Explain judges one packet by walking the Input rule by rule, and keeps the way there. Ids and
// verdict are those of Compile for the same Input.
func Explain(in Input, d Direction, addr netip.Addr, p Protocol, port uint16) Explanation {
	e := Explanation{Direction: d, Remote: addr, Protocol: p, Port: port}
	x := explainer{Explanation: &e, ids: sourceIDs(&in)}
	x.findIsolating(&in)
	x.findMatches(&in)
	x.decide(in.Default[d])
	return e
}

type explainer struct {
	*Explanation
	ids map[Source]RuleID // by identity
}

func sourceIDs(in *Input) map[Source]RuleID {
	var sets [2]*ruleset
	ports := newPortLists()
	for _, d := range Directions {
		sets[d] = gather(in, d, ports)
	}
	sources := sourcesOf(sets)
	assignIDs(sources)
	ids := make(map[Source]RuleID, len(sources))
	for _, s := range sources {
		ids[s.identity()] = s.ID
	}
	return ids
}

func (x *explainer) findIsolating(in *Input) {
	for _, p := range in.Policies {
		if p.Isolates[x.Direction] {
			x.Isolating = append(x.Isolating, p.Ref)
		}
	}
	slices.SortFunc(x.Isolating, compareRefs)
	x.Isolating = slices.Compact(x.Isolating)
}

func (x *explainer) findMatches(in *Input) {
	for _, p := range in.Policies {
		if !p.Isolates[x.Direction] {
			continue
		}
		for n := range p.Rules[x.Direction] {
			s := Source{Policy: p.Ref, Tier: TierNetworkPolicy, Action: ActionAccept, Rule: n}
			x.consider(s, &p.Rules[x.Direction][n])
		}
	}
	for _, p := range in.Cluster {
		if !p.inTier() {
			continue
		}
		for n := range p.Rules[x.Direction] {
			r := &p.Rules[x.Direction][n]
			s := Source{Policy: p.Ref, Tier: p.Tier, Priority: p.Priority, Action: r.Action, Rule: n}
			x.consider(s, &r.Rule)
		}
	}
	slices.SortStableFunc(x.Matches, func(a, b Match) int {
		if c := compareSources(&a.Source, &b.Source); c != 0 {
			return c
		}
		return a.Source.Rule - b.Source.Rule
	})
}

// consider notes a rule if it matches the packet.
func (x *explainer) consider(s Source, r *Rule) {
	if s.Action > ActionPass || !r.Peer.matches(s.Action, x.Remote) || !r.matches(x.Protocol, x.Port) {
		return
	}
	s.Direction = x.Direction
	if !r.AllPorts {
		s.Ports = spansText(canonicalSpans(r.Ports))
	}
	s.ID = x.ids[s.identity()]
	x.Matches = append(x.Matches, Match{Source: s, Block: r.Peer.Block})
}

// matches tells whether the peer of a rule with the given action covers an address.
func (p *Peer) matches(a Action, addr netip.Addr) bool {
	if !valid(p.Block) || !p.Block.Contains(addr.WithZone("")) {
		return false
	}
	for _, e := range p.Except {
		if !valid(e) && a != ActionDeny || valid(e) && e.Contains(addr.WithZone("")) {
			return false
		}
	}
	return true
}

// matches tells whether the ports of a rule cover a packet's.
func (r *Rule) matches(p Protocol, port uint16) bool {
	return r.AllPorts || slices.ContainsFunc(r.Ports, func(q Ports) bool {
		return q.Protocol == p && q.First <= port && port <= q.Last
	})
}

// decide goes through the tiers.
func (x *explainer) decide(fallback Verdict) {
	if x.decideBy(TierAdmin) {
		return
	}
	if len(x.Isolating) > 0 {
		if !x.decideBy(TierNetworkPolicy) {
			s := isolationSource(x.Isolating[0], x.Direction)
			s.ID = x.ids[s.identity()]
			x.Verdict, x.Tier, x.Decision = Deny, TierNetworkPolicy, *s
		}
		return
	}
	if !x.decideBy(TierBaseline) {
		x.Verdict, x.Tier = fallback, TierDefault
	}
}

// decideBy lets the first match of a tier decide. It returns false if there is none, or it passes.
func (x *explainer) decideBy(t Tier) bool {
	i := slices.IndexFunc(x.Matches, func(m Match) bool { return m.Source.Tier == t })
	if i < 0 || x.Matches[i].Source.Action == ActionPass {
		return false
	}
	m := &x.Matches[i]
	m.Decides = true
	x.Tier, x.Decision = t, m.Source
	if m.Source.Action == ActionAccept {
		x.Verdict = Allow
	}
	return true
}

// String tells the decision in one line, and every match in a line of its own.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v %v/%d: %v by %v", e.Direction, e.Remote, e.Protocol, e.Port, e.Verdict, e.Tier)
	switch s := e.Decision; {
	case s.Isolation:
		fmt.Fprintf(&b, ": isolated by %v, no rule matches", s.Policy)
	case e.Tier != TierDefault:
		fmt.Fprintf(&b, ": %v rule %d", s.Policy, s.Rule)
	}
	for _, m := range e.Matches {
		mark := " "
		if m.Decides {
			mark = "*"
		}
		ports := m.Source.Ports
		if ports == "" {
			ports = "all ports"
		}
		fmt.Fprintf(&b, "\n%s %v", mark, m.Source.Tier)
		if m.Source.Tier != TierNetworkPolicy {
			fmt.Fprintf(&b, " priority %d", m.Source.Priority)
		}
		fmt.Fprintf(&b, ": %v %v rule %d: %v %s", m.Source.Action, m.Source.Policy, m.Source.Rule, m.Block, ports)
	}
	return b.String()
}
