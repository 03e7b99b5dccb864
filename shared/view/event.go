package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Event is one line of the flow log: a verdict on a packet.
type Event struct {
	Time      time.Time  `json:"time"`
	Node      string     `json:"node,omitempty"`
	Namespace string     `json:"namespace,omitempty"` // of the pod that was judged
	Pod       string     `json:"pod,omitempty"`
	Direction string     `json:"direction"` // in the pod's view
	Src       netip.Addr `json:"src,omitzero"`
	SrcPort   uint16     `json:"srcPort,omitempty"`
	Dst       netip.Addr `json:"dst,omitzero"`
	DstPort   uint16     `json:"dstPort,omitempty"`
	Protocol  string     `json:"protocol,omitempty"`
	Verdict   string     `json:"verdict"`
	Reason    string     `json:"reason"`
	Tier      string     `json:"tier,omitempty"`
	Policy    *Policy    `json:"policy,omitempty"`
	Isolation bool       `json:"isolation,omitempty"`
	Bytes     uint32     `json:"bytes"`
	Rules     uint32     `json:"rules,omitempty"`
	Interface int        `json:"interface,omitempty"`

	// Suppressed is in a line of its own: what the log has left out since the last one, by cause.
	Suppressed map[string]uint64 `json:"suppressed,omitempty"`
}

// From is where the packet came from: the address, with its port where the protocol has one.
func (e Event) From() string { return endpoint(e.Src, e.SrcPort) }

// To is where the packet went.
func (e Event) To() string { return endpoint(e.Dst, e.DstPort) }

func endpoint(a netip.Addr, port uint16) string {
	switch {
	case !a.IsValid():
		return "?"
	case port == 0:
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}

// Key is "namespace/pod", empty if the pod is not known.
func (e Event) Key() string {
	if e.Pod == "" {
		return ""
	}
	return e.Namespace + "/" + e.Pod
}

// By says what decided.
func (e Event) By() string {
	switch {
	case e.Policy != nil:
		return Decision{Policy: e.Policy, Tier: e.Tier, Isolation: e.Isolation}.String()
	case e.Tier == "Default":
		return "default of the mode"
	case e.Reason == "" || e.Reason == ReasonPolicy:
		return e.Tier
	}
	return e.Reason
}

// ErrNoEvent says that a line is none of the flow log.
var ErrNoEvent = errors.New("not a line of the flow log")

// ParseEvent reads a line of either format of the flow log. The line of the AWS network policy agent
// knows no pod and no policy; owner, if not nil, finds the pod by its address.
func ParseEvent(line []byte, owner func(netip.Addr) (namespace, pod string)) (Event, error) {
	var raw struct {
		Event
		TS  time.Time `json:"ts"`
		Msg string    `json:"msg"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrNoEvent, err)
	}
	e := raw.Event
	if strings.HasPrefix(raw.Msg, "Flow Info:") {
		return parseAWS(raw.TS, raw.Msg, owner)
	}
	if e.Verdict == "" && e.Suppressed == nil {
		return e, ErrNoEvent
	}
	return e, nil
}

var awsLine = regexp.MustCompile(`^Flow Info: Src IP: (\S+) Src Port: (\d+) Dest IP: (\S+) Dest Port: (\d+) ` +
	`Proto:? (\S+) Verdict:? (\S+) Direction:? (\w+),? Tier:? (\w+)$`)

// AWS names of tiers. An ERROR is no tier's.
var awsTiers = map[string]string{"ADMIN": "Admin", "NETWORK_POLICY": "NetworkPolicy", "BASELINE": "Baseline", "DEFAULT": "Default"}

func parseAWS(at time.Time, msg string, owner func(netip.Addr) (string, string)) (Event, error) {
	m := awsLine.FindStringSubmatch(msg)
	if m == nil {
		return Event{}, ErrNoEvent
	}
	e := Event{Time: at, Protocol: m[5], Direction: m[7], Tier: awsTiers[m[8]], Reason: ReasonPolicy, Verdict: "deny"}
	if m[6] == "ACCEPT" {
		e.Verdict = "allow"
	}
	if e.Tier == "" {
		e.Reason = "error"
	}
	e.Src, _ = netip.ParseAddr(m[1])
	e.Dst, _ = netip.ParseAddr(m[3])
	e.SrcPort, e.DstPort = port(m[2]), port(m[4])
	if owner != nil {
		own := e.Src
		if e.Direction == "ingress" {
			own = e.Dst
		}
		e.Namespace, e.Pod = owner(own)
	}
	return e, nil
}

func port(s string) uint16 {
	n, _ := strconv.ParseUint(s, 10, 16)
	return uint16(n)
}

// EventFilter chooses events. Empty fields choose all.
type EventFilter struct {
	Namespace, Pod string // Pod needs Namespace
	Direction      string
	Verdict        string
	Policy         string // "namespace/name", or a name alone
	Since          time.Time
}

// Match tells whether an event is chosen. What the log has left out concerns everybody.
func (f EventFilter) Match(e Event) bool {
	if e.Suppressed != nil {
		return !e.Time.Before(f.Since)
	}
	return (f.Namespace == "" || f.Namespace == e.Namespace) && (f.Pod == "" || f.Pod == e.Pod) &&
		(f.Direction == "" || f.Direction == e.Direction) && (f.Verdict == "" || f.Verdict == e.Verdict) &&
		(f.Policy == "" || f.policy(e.Policy)) && !e.Time.Before(f.Since)
}

func (f EventFilter) policy(p *Policy) bool {
	return p != nil && (f.Policy == p.Name || f.Policy == p.Namespace+"/"+p.Name)
}
