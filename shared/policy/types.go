package policy

import "net/netip"

// Direction is the pod's view, as in the NetworkPolicy API: Ingress is into the pod, Egress out of
// it. Its values are those of enum latch_dir in bpf/types.h.
type Direction uint8

// Directions of traffic, from the pod's view.
const (
	Ingress Direction = 0
	Egress  Direction = 1
)

// Directions lists both, for loops.
var Directions = [2]Direction{Ingress, Egress}

// Verdict is deny or allow. The zero value denies.
type Verdict uint8

// Verdicts.
const (
	Deny  Verdict = 0
	Allow Verdict = 1
)

// Protocol is an IP protocol number.
type Protocol uint8

// Protocols that a port of a policy can name.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// Ports is an inclusive range of ports of one protocol. A whole protocol is 0-65535.
type Ports struct {
	Protocol Protocol
	First    uint16
	Last     uint16
}

// Peer is a block of addresses less exceptions inside it. Host bits are zero.
type Peer struct {
	Block  netip.Prefix
	Except []netip.Prefix
}

// Rule allows one peer on a list of ports. AllPorts is every protocol and port; then Ports is not
// looked at. A rule with AllPorts false and no Ports matches nothing.
type Rule struct {
	Peer     Peer
	AllPorts bool
	Ports    []Ports
}

// PolicyRef names a policy object. Kind is NetworkPolicy, ApplicationNetworkPolicy or
// ClusterNetworkPolicy.
type PolicyRef struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Policy is one namespaced policy that selects the identifier, all chunks of it together.
type Policy struct {
	Ref      PolicyRef
	Isolates [2]bool   // by Direction: the policy's podIsolation (D11)
	Rules    [2][]Rule // by Direction; ignored where Isolates is false
}

// Tier is Admin (before namespaced policies) or Baseline (after them).
type Tier uint8

// Tiers in the order of evaluation. Namespaced policies stand between Admin and Baseline.
const (
	TierAdmin Tier = iota
	TierNetworkPolicy
	TierBaseline
	TierDefault
)

// Action of a rule of a cluster policy.
type Action uint8

// Actions in the order in which they win at one priority (D10).
const (
	ActionDeny Action = iota
	ActionAccept
	ActionPass
)

// ClusterRule is a rule of a cluster policy.
type ClusterRule struct {
	Rule
	Action Action
}

// ClusterPolicy is one cluster-wide policy that selects the identifier.
type ClusterPolicy struct {
	Ref      PolicyRef
	Tier     Tier // TierAdmin or TierBaseline
	Priority int  // 0..1000, lower first
	Rules    [2][]ClusterRule
}

// Input is everything that decides the traffic of one identifier.
type Input struct {
	Policies []Policy
	Cluster  []ClusterPolicy
	Default  [2]Verdict // by Direction: the enforcing mode's verdict when nothing else decides
}

// RuleID names a Source inside results. 24 bits; 0 is the enforcing mode's default. It is a stable
// hash of the Source, so that an unrelated edit never changes the id of a rule.
type RuleID uint32

// Source is where a verdict comes from: what RuleID stands for. All rules of one policy, direction,
// action and list of ports are one Source, since the endpoints objects hold one rule per peer.
type Source struct {
	ID        RuleID    `json:"id"`
	Policy    PolicyRef `json:"policy"`
	Tier      Tier      `json:"tier"`
	Priority  int       `json:"priority,omitempty"`
	Direction Direction `json:"direction"`
	Action    Action    `json:"action"`
	Isolation bool      `json:"isolation,omitempty"` // implicit deny of a policy that isolates the direction
	Ports     string    `json:"ports,omitempty"`     // canonical list, "" = all
	Rule      int       `json:"rule"`                // lowest index of a rule of this source in its policy; not part of the id
}

// Result is a verdict and the rule that gave it.
type Result struct {
	Verdict Verdict
	Rule    RuleID
}

// Breakpoint starts an interval of port keys (protocol<<16 | port) that ends before the next
// breakpoint's Start, or with the last key, 0xffffff.
type Breakpoint struct {
	Start  uint32
	Result Result
}

// PortKey is the key of a packet's protocol and destination port; port 0 for protocols without.
func PortKey(p Protocol, port uint16) uint32 { return uint32(p)<<16 | uint32(port) }

// Entry says what happens to one prefix, for every protocol and port. The longest matching entry
// decides alone. Ports starts at 0, rises strictly, and neighbours differ in their Result.
type Entry struct {
	Prefix netip.Prefix
	Ports  []Breakpoint
}

// Rules is the flattened policy of an identifier: what the kernel looks up.
type Rules struct {
	OnMiss  [2]Result  // by Direction: no entry matches the remote address
	Entries [2][]Entry // by Direction: IPv4 before IPv6, then by address, then shorter first; unique
	Sources []Source   // every id that occurs in OnMiss or Entries, but 0; sorted by ID
}
