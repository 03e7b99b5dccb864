package view

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/latch-cni/latch/shared/policy"
)

// Protocols that people know by name, beside those of policy.
const (
	icmp   policy.Protocol = 1
	icmpv6 policy.Protocol = 58
)

func protocolName(p policy.Protocol) string {
	switch p {
	case policy.TCP, policy.UDP, policy.SCTP:
		return p.String()
	case icmp:
		return "ICMP"
	case icmpv6:
		return "ICMPv6"
	}
	return "protocol " + p.String()
}

// hasPorts tells whether packets of the protocol have ports.
func hasPorts(p policy.Protocol) bool {
	return p == policy.TCP || p == policy.UDP || p == policy.SCTP
}

// Port is a protocol with a port, if it has ports.
type Port struct {
	Protocol policy.Protocol
	Number   uint16
}

// String is as ParsePort takes it.
func (p Port) String() string {
	if hasPorts(p.Protocol) {
		return fmt.Sprintf("%d/%s", p.Number, p.Protocol)
	}
	return protocolName(p.Protocol)
}

// ParsePort reads "8080/TCP", "8080" (of TCP, as in the API), and for protocols without ports "ICMP",
// "ICMPv6" or "protocol/47".
func ParsePort(s string) (Port, error) {
	port, proto, found := strings.Cut(s, "/")
	if strings.EqualFold(port, "protocol") {
		n, err := strconv.ParseUint(proto, 10, 8)
		if err != nil || hasPorts(policy.Protocol(n)) {
			return Port{}, fmt.Errorf("port %q: want protocol/NUMBER of a protocol without ports", s)
		}
		return Port{Protocol: policy.Protocol(n)}, nil
	}
	for _, p := range []policy.Protocol{icmp, icmpv6} {
		if !found && strings.EqualFold(s, protocolName(p)) {
			return Port{Protocol: p}, nil
		}
	}
	if !found {
		proto = policy.TCP.String()
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err == nil {
		for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
			if strings.EqualFold(proto, p.String()) {
				return Port{p, uint16(n)}, nil
			}
		}
	}
	return Port{}, fmt.Errorf("port %q: want 8080/TCP, 53/UDP, 9899/SCTP, ICMP, ICMPv6 or protocol/NUMBER", s)
}
