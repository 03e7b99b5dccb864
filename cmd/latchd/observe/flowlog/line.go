package flowlog

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// line is one verdict. Its JSON is an interface.
type line struct {
	Time      time.Time         `json:"time"`
	Node      string            `json:"node,omitempty"`
	Namespace string            `json:"namespace,omitempty"` // of the pod that was judged
	Pod       string            `json:"pod,omitempty"`
	Direction string            `json:"direction"` // in the pod's view: ingress or egress
	Src       netip.Addr        `json:"src,omitzero"`
	SrcPort   uint16            `json:"srcPort,omitempty"`
	Dst       netip.Addr        `json:"dst,omitzero"`
	DstPort   uint16            `json:"dstPort,omitempty"`
	Protocol  string            `json:"protocol,omitempty"`
	Verdict   string            `json:"verdict"`             // deny or allow
	Reason    string            `json:"reason"`              // see reasons.md
	Tier      string            `json:"tier,omitempty"`      // that decided, when rules did
	Policy    *policy.PolicyRef `json:"policy,omitempty"`    // whose rule decided
	Isolation bool              `json:"isolation,omitempty"` // no rule of it matched: it isolates
	Bytes     uint32            `json:"bytes"`               // of the packet
	Rules     uint32            `json:"rules,omitempty"`     // generation of the rules that judged
	Interface int               `json:"interface,omitempty"` // index of the pod's host interface
}

// notice says what the log has left out.
type notice struct {
	Time       time.Time         `json:"time"`
	Node       string            `json:"node,omitempty"`
	Suppressed map[string]uint64 `json:"suppressed"` // lines, by cause, since the last notice
}

func lineOf(e *bpf.Event) line {
	l := line{
		Direction: policy.Direction(e.Dir).String(),
		Verdict:   policy.Verdict(e.Allow).String(),
		Reason:    bpf.Reason(e.Reason).String(),
		Bytes:     e.Len, Rules: e.Generation, Interface: int(e.Ifindex),
	}
	if src, dst := netip.AddrFrom16(e.Src).Unmap(), netip.AddrFrom16(e.Dst).Unmap(); e.Src != [16]byte{} || e.Dst != [16]byte{} {
		l.Src, l.Dst, l.Protocol = src, dst, protocolName(e.Proto)
	}
	if hasPorts(e.Proto) {
		l.SrcPort, l.DstPort = bpf.NetPort(e.Sport), bpf.NetPort(e.Dport)
	}
	return l
}

func hasPorts(proto uint8) bool {
	p := policy.Protocol(proto)
	return p == policy.TCP || p == policy.UDP || p == policy.SCTP
}

var protocols = map[uint8]string{1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP"}

func protocolName(proto uint8) string {
	if name, ok := protocols[proto]; ok {
		return name
	}
	return strconv.Itoa(int(proto))
}

// appendTo appends the line in a format.
func (l *line) appendTo(b []byte, f Format) []byte {
	if f == AWS {
		return l.appendAWS(b)
	}
	raw, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("a line of strings and numbers does not marshal: %v", err))
	}
	return append(append(b, raw...), '\n')
}

// appendAWS appends the line that the AWS network policy agent writes: labels differ by family, and
// users grep for them as they are.
func (l *line) appendAWS(b []byte) []byte {
	level, verdict := "info", "DENY"
	if l.Verdict == policy.Allow.String() {
		level, verdict = "debug", "ACCEPT"
	}
	layout := "Flow Info: Src IP: %s Src Port: %d Dest IP: %s Dest Port: %d Proto %s Verdict %s Direction %s, Tier %s"
	if l.Src.Is6() {
		layout = "Flow Info: Src IP: %s Src Port: %d Dest IP: %s Dest Port: %d Proto: %s Verdict: %s Direction: %s Tier: %s"
	}
	src, dst := l.Src, l.Dst
	if !src.IsValid() { // not parsed
		src, dst = netip.IPv4Unspecified(), netip.IPv4Unspecified()
	}
	b = append(b, `{"level":"`...)
	b = append(b, level...)
	b = append(b, `","ts":"`...)
	b = l.Time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(b, `","caller":"latchd/flowlog","msg":"`...)
	b = fmt.Appendf(b, layout, src, l.SrcPort, dst, l.DstPort, awsProtocol(l.Protocol), verdict, l.Direction, l.awsTier())
	return append(b, "\"}\n"...)
}

func awsProtocol(name string) string {
	switch name {
	case "TCP", "UDP", "SCTP", "ICMP":
		return name
	}
	return "UNKNOWN"
}

func (l *line) awsTier() string {
	switch l.Tier {
	case policy.TierAdmin.String():
		return "ADMIN"
	case policy.TierNetworkPolicy.String():
		return "NETWORK_POLICY"
	case policy.TierBaseline.String():
		return "BASELINE"
	case policy.TierDefault.String():
		return "DEFAULT"
	}
	if l.Verdict == policy.Allow.String() {
		return "DEFAULT" // let through by no rule
	}
	return "ERROR" // dropped by no rule
}
