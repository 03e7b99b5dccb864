package probe

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Proto is an IP protocol number.
type Proto uint8

// Protocols that are probed with an answer. ICMP is an echo request, ICMPv6's for an IPv6 address; its
// port is 0. A probe of any other protocol has no answer: it is Allowed when it arrives.
const (
	ICMP Proto = 1
	TCP  Proto = 6
	UDP  Proto = 17
	SCTP Proto = 132
)

func (p Proto) String() string {
	switch p {
	case ICMP:
		return "ICMP"
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("IP/%d", uint8(p))
}

// hasPorts says whether packets of the protocol begin with two ports. Those of a protocol that the
// prober does not know do so too when the prober made them.
func (p Proto) hasPorts() bool { return p != ICMP }

// answers says whether a request that arrives is answered.
func (p Proto) answers() bool { return p == TCP || p == UDP || p == SCTP || p == ICMP }

// onWire is the protocol's number in packets of the address's family.
func (p Proto) onWire(a netip.Addr) int {
	if p == ICMP && a.Is6() {
		return unix.IPPROTO_ICMPV6
	}
	return int(p)
}

// ParseProto reads the API's name of a protocol.
func ParseProto(s string) (Proto, error) {
	for _, p := range []Proto{TCP, UDP, SCTP, ICMP} {
		if p.String() == s {
			return p, nil
		}
	}
	return 0, fmt.Errorf("protocol %q cannot be probed", s)
}

// Target is what a probe asks for at its destination.
type Target struct {
	Proto Proto
	Port  uint16
}

func (t Target) String() string { return fmt.Sprintf("%v/%d", t.Proto, t.Port) }

// Probe is one question: does From reach To?
type Probe struct {
	From, To *Endpoint
	Target
}

// Outcome answers a probe. The zero value is Denied.
type Outcome uint8

// Outcomes.
const (
	Denied   Outcome = iota // the request was not seen at the destination
	Allowed                 // the request arrived and was answered
	HalfOpen                // the request arrived, the answer did not come back
)

// Letter is the outcome as in the table of a scenario; H for HalfOpen.
func (o Outcome) Letter() byte { return "DAH"[o] }

func (o Outcome) String() string {
	return [...]string{"denied", "allowed", "half-open"}[o]
}
