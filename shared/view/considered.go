package view

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/latch-cni/latch/shared/policy"
)

// considered are the answers of all that lies behind the entry that decides.
func (c content) considered(d policy.Direction, remote netip.Addr, port Port) []Considered {
	var around []policy.Entry
	for _, e := range c.rules.Entries[d] {
		if e.Prefix.Contains(remote) {
			around = append(around, e)
		}
	}
	if len(around) == 0 {
		return nil // what no entry names is what decides
	}
	slices.SortFunc(around, func(a, b policy.Entry) int { return b.Prefix.Bits() - a.Prefix.Bits() })
	var all []Considered
	for _, e := range around[1:] {
		alone := policy.Rules{OnMiss: c.rules.OnMiss}
		alone.Entries[d] = []policy.Entry{e}
		all = append(all, Considered{e.Prefix.String(), c.known.decision(alone.Lookup(d, remote, port.Protocol, port.Number))})
	}
	return append(all, Considered{Decision: c.known.decision(c.rules.OnMiss[d])})
}

// noMatch are the policies that neither decide nor would.
func noMatch(selecting []Policy, j Judged) []Policy {
	named := []*Policy{j.Policy}
	for _, c := range j.Considered {
		named = append(named, c.Policy)
	}
	return slices.DeleteFunc(slices.Clone(selecting), func(p Policy) bool {
		return slices.ContainsFunc(named, func(q *Policy) bool { return q != nil && *q == p })
	})
}

// differs says where what is meant for a pod is not, or may not be, what the kernel holds.
func (n *Node) differs(e end) []string {
	var all []string
	for _, p := range e.pod.Problems {
		all = append(all, e.Pod+": "+p.String())
	}
	for _, p := range e.pod.Pending {
		all = append(all, fmt.Sprintf("%s: policy %s selects it, and what it allows is not known yet", e.Pod, p))
	}
	var s Status
	err := n.watcher(&s)
	w := s.Watcher
	switch {
	case err != nil || w.Spoke == nil:
		return append(all, "latchd has not spoken: policy may have changed since the rules were written")
	case w.Stopped:
		all = append(all, "latchd does not run: policy may have changed since")
	case !w.Running:
		all = append(all, fmt.Sprintf("latchd is silent for %s: policy may have changed since", time.Since(*w.Spoke).Abs().Round(time.Second)))
	}
	for _, p := range w.Problems {
		if p.Object == "identifier "+e.pod.Identifier {
			all = append(all, fmt.Sprintf("%s: newer rules are not in the kernel: %s", e.Pod, p.Message))
		}
	}
	return all
}
