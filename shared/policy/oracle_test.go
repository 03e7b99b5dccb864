package policy

import (
	"math"
	"net/netip"
	"slices"
)

// oracle judges one packet by the words of the API alone. It shares nothing with the compiler but
// the types, and is slow and plain on purpose.
func oracle(in Input, d Direction, a netip.Addr, p Protocol, port uint16) (Verdict, Tier) {
	switch oracleTier(in, TierAdmin, d, a, p, port) {
	case ActionDeny:
		return Deny, TierAdmin
	case ActionAccept:
		return Allow, TierAdmin
	}
	isolated, allowed := false, false
	for _, pol := range in.Policies {
		if pol.Isolates[d] {
			isolated = true
			for _, r := range pol.Rules[d] {
				allowed = allowed || oracleMatch(r, false, a, p, port)
			}
		}
	}
	if allowed {
		return Allow, TierNetworkPolicy
	}
	if isolated {
		return Deny, TierNetworkPolicy
	}
	switch oracleTier(in, TierBaseline, d, a, p, port) {
	case ActionDeny:
		return Deny, TierBaseline
	case ActionAccept:
		return Allow, TierBaseline
	}
	return in.Default[d], TierDefault
}

// oracleTier returns the action of a tier: Pass if no rule matches.
func oracleTier(in Input, t Tier, d Direction, a netip.Addr, p Protocol, port uint16) Action {
	priority, action := math.MaxInt, ActionPass
	for _, pol := range in.Cluster {
		for _, r := range pol.Rules[d] {
			known := slices.Contains([]Action{ActionDeny, ActionAccept, ActionPass}, r.Action)
			if pol.Tier != t || !known || !oracleMatch(r.Rule, r.Action == ActionDeny, a, p, port) {
				continue
			}
			if pol.Priority < priority {
				priority, action = pol.Priority, r.Action
			} else if pol.Priority == priority {
				action = min(action, r.Action)
			}
		}
	}
	return action
}

func oracleMatch(r Rule, denies bool, a netip.Addr, p Protocol, port uint16) bool {
	mapped := netip.MustParsePrefix("::ffff:0:0/96")
	if r.Peer.Block.Addr().Is4In6() || !r.Peer.Block.Contains(a) {
		return false
	}
	for _, e := range r.Peer.Except {
		bad := !e.IsValid() || mapped.Contains(e.Addr())
		if bad && !denies || !bad && e.Contains(a) {
			return false
		}
	}
	for _, q := range r.Ports {
		if !r.AllPorts && q.Protocol == p && q.First <= port && port <= q.Last {
			return true
		}
	}
	return r.AllPorts
}
