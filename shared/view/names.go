package view

import (
	"fmt"

	"github.com/latch-cni/latch/shared/policy"
)

// Policy names a policy object.
type Policy struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"` // empty for cluster-wide ones
	Name      string `json:"name"`
}

// String is short for people: the kind is told unless it is NetworkPolicy.
func (p Policy) String() string {
	name := p.Name
	if p.Namespace != "" {
		name = p.Namespace + "/" + p.Name
	}
	if p.Kind == "NetworkPolicy" {
		return name
	}
	return p.Kind + " " + name
}

func policyOf(r policy.PolicyRef) Policy {
	return Policy{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

func policiesOf(refs []policy.PolicyRef) []Policy {
	all := make([]Policy, 0, len(refs))
	for _, r := range refs {
		all = append(all, policyOf(r))
	}
	return all
}

// Decision is a verdict and what gave it.
type Decision struct {
	Verdict   string  `json:"verdict"`             // allow or deny
	Rule      uint32  `json:"rule"`                // id of the rule in the kernel; 0 is the mode's default
	Tier      string  `json:"tier,omitempty"`      // Admin, NetworkPolicy, Baseline or Default; empty if the rule is not recorded
	Policy    *Policy `json:"policy,omitempty"`    // whose rule it is; none for the default
	Priority  *int    `json:"priority,omitempty"`  // of a cluster policy
	Action    string  `json:"action,omitempty"`    // of the rule: Accept, Deny or Pass
	Isolation bool    `json:"isolation,omitempty"` // no rule: the policy isolates, and nothing it allows matches
}

// String names the policy, and says how it came to decide when that is not by a rule of it.
func (d Decision) String() string {
	switch {
	case d.Policy == nil && d.Tier == policy.TierDefault.String():
		return "default of the mode"
	case d.Policy == nil:
		return fmt.Sprintf("rule %#x, not recorded", d.Rule)
	case d.Isolation:
		return d.Policy.String() + " (isolates)"
	case d.Priority != nil:
		return fmt.Sprintf("%s (%s %d)", d.Policy, d.Tier, *d.Priority)
	}
	return d.Policy.String()
}

// sources are what the rule ids of a slot stand for.
type sources map[policy.RuleID]policy.Source

func (s sources) decision(r policy.Result) Decision {
	d := Decision{Verdict: r.Verdict.String(), Rule: uint32(r.Rule)}
	if r.Rule == 0 {
		d.Tier = policy.TierDefault.String()
		return d
	}
	src, ok := s[r.Rule]
	if !ok {
		return d
	}
	name := policyOf(src.Policy)
	d.Policy, d.Tier, d.Action, d.Isolation = &name, src.Tier.String(), src.Action.String(), src.Isolation
	if src.Tier == policy.TierAdmin || src.Tier == policy.TierBaseline {
		d.Priority = &src.Priority
	}
	return d
}
