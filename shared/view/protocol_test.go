package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/policy"
)

func TestParsePort(t *testing.T) {
	for in, want := range map[string]string{
		"8080/TCP": "8080/TCP", "53/udp": "53/UDP", "80": "80/TCP", "9899/Sctp": "9899/SCTP",
		"ICMP": "ICMP", "icmpv6": "ICMPv6", "protocol/47": "protocol 47", "0/TCP": "0/TCP",
	} {
		if got, err := ParsePort(in); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "65536", "TCP/80", "80/", "80/ICMP", "-1", "protocol/6", "protocol/256", "80/TCP/1", "TCP"} {
		if got, err := ParsePort(in); err == nil {
			t.Errorf("%s is taken for %v", in, got)
		}
	}
}

func TestSpans(t *testing.T) {
	key := policy.PortKey
	for _, test := range []struct {
		name        string
		first, last uint32
		want        []string
	}{
		{"one port", key(policy.TCP, 80), key(policy.TCP, 80), []string{"TCP/80"}},
		{"a protocol", key(policy.UDP, 0), key(policy.UDP, 65535), []string{"UDP"}},
		{"a protocol without ports", key(1, 0), key(1, 65535), []string{"ICMP"}},
		{"everything", 0, portKeyMax, []string{"protocols 0-255"}},
		{"across protocols", key(policy.TCP, 443), key(policy.UDP, 53), []string{"TCP/443-65535", "protocols 7-16", "UDP/0-53"}},
		{"up to the end", key(254, 0), portKeyMax, []string{"protocols 254-255"}},
	} {
		if diff := cmp.Diff(test.want, spans(test.first, test.last)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}
