package probe

import "fmt"

// Proto is an IP protocol number.
type Proto uint8

// Protocols that can be probed.
const (
	TCP  Proto = 6
	UDP  Proto = 17
	SCTP Proto = 132
)

func (p Proto) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("IP/%d", uint8(p))
}

// ParseProto reads the API's name of a protocol.
func ParseProto(s string) (Proto, error) {
	for _, p := range []Proto{TCP, UDP, SCTP} {
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
