package view

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// Verdicts of an Explanation, beside allow and deny.
const verdictUnknown = "unknown"

// Why a side gives its verdict.
const (
	ReasonPolicy    = "policy"     // the rules in the kernel
	ReasonNode      = "node"       // the other end is this node: exempt from policy
	ReasonSelf      = "self"       // a pod to itself
	ReasonRemote    = "remote"     // this end is not on this node: its own node judges
	ReasonUnbound   = "no-state"   // bound to no rules: everything is dropped
	ReasonNotLoaded = "incomplete" // its slot is not complete: everything is dropped
	ReasonOpen      = "not-in-force"
)

// Explanation says what happens to a new flow now, and why.
type Explanation struct {
	From     Endpoint `json:"from"`
	To       Endpoint `json:"to"`
	Port     string   `json:"port"`    // 8080/TCP
	Verdict  string   `json:"verdict"` // allow; deny, if one side denies; unknown, if neither end is on this node
	Egress   Judged   `json:"egress"`  // by the rules of From
	Ingress  Judged   `json:"ingress"` // by the rules of To
	Warnings []string `json:"warnings,omitempty"`

	Elsewhere bool `json:"elsewhere,omitempty"` // an end is not on this node: its side is judged elsewhere, and may be denied
}

// Endpoint is one end of the flow.
type Endpoint struct {
	Pod     string     `json:"pod,omitempty"` // namespace/name, if it is a pod of this node
	Address netip.Addr `json:"address"`
	Node    bool       `json:"node,omitempty"` // an address of this node; of To only those that are the node's to the programs
}

// String names the pod and its address.
func (e Endpoint) String() string {
	switch {
	case e.Pod != "":
		return fmt.Sprintf("%s (%v)", e.Pod, e.Address)
	case e.Node:
		return fmt.Sprintf("%v (this node)", e.Address)
	}
	return e.Address.String()
}

// Judged is the verdict of one side.
type Judged struct {
	Reason     string   `json:"reason"`
	Decision            // verdict is unknown for ReasonRemote
	Prefix     string   `json:"prefix,omitempty"` // of the entry that decides; empty if none matches
	Ports      []string `json:"ports,omitempty"`  // of that entry, with this result
	Slot       uint32   `json:"slot,omitempty"`
	Generation uint32   `json:"generation,omitempty"`
	Note       string   `json:"note,omitempty"`      // on what the verdict depends beside rules
	Guarded    bool     `json:"antiSpoof,omitempty"` // the pod sends, and from its own addresses only
	// Considered are what would decide without the entry that does: entries of shorter prefixes around
	// the address, the longest first, then what an address gets that no entry names.
	Considered []Considered `json:"considered,omitempty"`
	// NoMatch are the policies that select the pod and have no part in any of these.
	NoMatch []Policy `json:"noMatch,omitempty"`
}

// Considered is the answer of an entry that does not decide.
type Considered struct {
	Prefix string `json:"prefix,omitempty"` // empty: what no entry names
	Decision
}

// Query is a question for Explain: From and To are "namespace/pod" or addresses.
type Query struct {
	From, To string
	Port     Port
	Family   int // 4 or 6; 0 = the one that both ends have, IPv4 if both have both
}

type end struct {
	Endpoint
	pod *Pod
}

// Explain asks what the node does with a new flow, by the kernel's rules.
func (n *Node) Explain(q Query) (Explanation, error) {
	pods, err := n.Pods()
	if err != nil {
		return Explanation{}, err
	}
	from, to, err := n.ends(pods, q)
	if err != nil {
		return Explanation{}, err
	}
	if from.pod == nil && !from.Node {
		if from.Node, err = isOwn(from.Address); err != nil {
			return Explanation{}, err
		}
	}
	x := Explanation{From: from.Endpoint, To: to.Endpoint, Port: q.Port.String()}
	if x.Egress, err = n.judge(from, to, policy.Egress, q.Port); err != nil {
		return x, err
	}
	if x.Ingress, err = n.judge(to, from, policy.Ingress, q.Port); err != nil {
		return x, err
	}
	for _, e := range []end{from, to} {
		if e.pod != nil {
			x.Warnings = append(x.Warnings, n.differs(e)...)
		}
	}
	x.Egress.Guarded = from.pod != nil && from.pod.interfaceOf(from.Address).Guarded
	x.Elsewhere = from.pod == nil && !from.Node || to.pod == nil && !to.Node
	x.Verdict = verdictUnknown
	for _, side := range []Judged{x.Egress, x.Ingress} {
		if x.Verdict == policy.Deny.String() || side.Verdict == verdictUnknown {
			continue
		}
		x.Verdict = side.Verdict
	}
	return x, nil
}

// ends finds both ends, with addresses of one family.
func (n *Node) ends(pods []Pod, q Query) (from, to end, err error) {
	froms, err := n.candidates(pods, q.From)
	if err != nil {
		return from, to, err
	}
	tos, err := n.candidates(pods, q.To)
	if err != nil {
		return from, to, err
	}
	families := []int{4, 6}
	if q.Family != 0 {
		families = []int{q.Family}
	}
	for _, f := range families {
		i := slices.IndexFunc(froms, func(e end) bool { return family(e.Address) == f })
		j := slices.IndexFunc(tos, func(e end) bool { return family(e.Address) == f })
		if i >= 0 && j >= 0 {
			return froms[i], tos[j], nil
		}
	}
	return from, to, fmt.Errorf("%s and %s have no addresses of one family%s", q.From, q.To, wanted(q.Family))
}

func wanted(family int) string {
	if family == 0 {
		return ""
	}
	return fmt.Sprintf(", IPv%d", family)
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// candidates are the addresses that a name stands for.
func (n *Node) candidates(pods []Pod, name string) ([]end, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return n.byAddress(pods, a.Unmap())
	}
	namespace, pod, ok := strings.Cut(name, "/")
	if !ok || namespace == "" || pod == "" {
		return nil, fmt.Errorf("%q is neither NAMESPACE/POD nor an IP address", name)
	}
	var ends []end
	known := false
	for i := range pods {
		p := &pods[i]
		if p.Key() != name {
			continue
		}
		known = true
		for _, a := range p.Addrs() {
			ends = append(ends, end{Endpoint: Endpoint{Pod: name, Address: a}, pod: p})
		}
	}
	switch {
	case !known:
		return nil, fmt.Errorf("%w: %s", ErrNoPod, name)
	case len(ends) == 0:
		return nil, fmt.Errorf("%w: %s has no interface yet", ErrNoPod, name)
	}
	return ends, nil
}

func (n *Node) byAddress(pods []Pod, a netip.Addr) ([]end, error) {
	for i := range pods {
		if slices.Contains(pods[i].Addrs(), a) {
			return []end{{Endpoint: Endpoint{Pod: pods[i].Key(), Address: a}, pod: &pods[i]}}, nil
		}
	}
	e := end{Endpoint: Endpoint{Address: a}}
	k, err := n.objects()
	if err != nil {
		return nil, err
	}
	var there uint8
	err = k.maps["node_addrs"].Lookup(bpf.NewNodeAddr(a), &there)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, fmt.Errorf("look up node address: %w", err)
	}
	e.Node = err == nil
	return []end{e}, nil
}

// isOwn tells whether an address is on an interface of the caller's network namespace: what the node itself sends
// is known by where it comes from, whatever address it bears. What is sent to such an address may go on to others:
// IPVS has those of all services on an interface.
func isOwn(a netip.Addr) (bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("list the node's addresses: %w", err)
	}
	return slices.ContainsFunc(all, func(on net.Addr) bool {
		p, err := netip.ParsePrefix(on.String())
		return err == nil && p.Addr().Unmap() == a
	}), nil
}

// judge gives the verdict of one end's rules on the other end.
func (n *Node) judge(own, other end, d policy.Direction, port Port) (Judged, error) {
	drop := Decision{Verdict: policy.Deny.String()}
	pass := Decision{Verdict: policy.Allow.String()}
	if own.pod == nil {
		return Judged{Reason: ReasonRemote, Decision: Decision{Verdict: verdictUnknown}}, nil
	}
	k, err := n.objects()
	if err != nil {
		return Judged{}, err
	}
	in := own.pod.interfaceOf(own.Address)
	h, ok := k.slot(own.pod.Slot)
	switch hook := in.hookOf(d); {
	case !hook.Attached:
		return Judged{Reason: ReasonOpen, Decision: pass}, nil
	case !in.Bound:
		return Judged{Reason: ReasonUnbound, Decision: drop}, nil
	case !ok || h.Flags&bpf.SlotComplete == 0:
		return Judged{Reason: ReasonNotLoaded, Decision: drop, Slot: own.pod.Slot}, nil
	case own.Address == other.Address:
		return Judged{Reason: ReasonSelf, Decision: pass}, nil
	case other.Node && d == policy.Ingress:
		return Judged{Reason: ReasonNode, Decision: pass}, nil
	}
	c, err := n.content(*own.pod)
	if err != nil {
		return Judged{}, err
	}
	j := c.judge(d, other.Address, port)
	j.Considered = c.considered(d, other.Address, port)
	j.NoMatch = noMatch(own.pod.Policies, j)
	judgeToNode := k.node.At(0).Flags&bpf.NodeJudgeToNode != 0
	if !other.Node || j.Verdict != policy.Deny.String() || judgeToNode {
		return j, nil
	}
	passes, note, err := toNode(other.Address, port)
	if passes {
		j = Judged{Reason: ReasonNode, Decision: pass}
	}
	j.Note = note
	return j, err
}

// judge looks a packet up as the kernel does, and finds the entry that decides.
func (c content) judge(d policy.Direction, remote netip.Addr, port Port) Judged {
	r := c.rules.Lookup(d, remote, port.Protocol, port.Number)
	j := Judged{Reason: ReasonPolicy, Decision: c.known.decision(r), Slot: c.slot, Generation: c.generation}
	var longest *policy.Entry
	for i := range c.rules.Entries[d] {
		e := &c.rules.Entries[d][i]
		if e.Prefix.Contains(remote) && (longest == nil || e.Prefix.Bits() > longest.Prefix.Bits()) {
			longest = e
		}
	}
	if longest == nil {
		return j
	}
	j.Prefix = longest.Prefix.String()
	for _, line := range linesOf(d, *longest, c.known) {
		if line.Rule == uint32(r.Rule) && line.Verdict == r.Verdict.String() {
			j.Ports = line.Ports
		}
	}
	return j
}

func (p *Pod) interfaceOf(a netip.Addr) Interface {
	for _, in := range p.Interfaces {
		if in.Addr4 == a || in.Addr6 == a {
			return in
		}
	}
	return Interface{}
}

// hookOf is the hook that judges a direction.
func (in Interface) hookOf(d policy.Direction) Hook {
	if d == policy.Ingress {
		return in.ToPod
	}
	return in.FromPod
}
