package policy

import "strconv"

// String returns the API's word in lower case.
func (d Direction) String() string {
	switch d {
	case Ingress:
		return "ingress"
	case Egress:
		return "egress"
	}
	return "direction " + strconv.Itoa(int(d))
}

// String returns "deny" or "allow".
func (v Verdict) String() string {
	if v == Allow {
		return "allow"
	}
	return "deny"
}

// String returns the API's name of the protocol, or its number.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return strconv.Itoa(int(p))
}

// String returns the API's name of the tier.
func (t Tier) String() string {
	switch t {
	case TierAdmin:
		return "Admin"
	case TierNetworkPolicy:
		return "NetworkPolicy"
	case TierBaseline:
		return "Baseline"
	case TierDefault:
		return "Default"
	}
	return "tier " + strconv.Itoa(int(t))
}

// String returns the API's name of the action.
func (a Action) String() string {
	switch a {
	case ActionDeny:
		return "Deny"
	case ActionAccept:
		return "Accept"
	case ActionPass:
		return "Pass"
	}
	return "action " + strconv.Itoa(int(a))
}

// String returns "Kind namespace/name", or "Kind name" for a cluster-wide policy. It is for people;
// it is no key.
func (r PolicyRef) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}
