package enforce

import (
	"time"

	"github.com/latch-cni/latch/bpf"
)

// Timeouts are how long a flow is known after its last packet, and what else the data path waits.
type Timeouts struct {
	TCPSyn         time.Duration // unanswered SYN
	TCPEstablished time.Duration
	TCPClosing     time.Duration // after RST, or FIN of both sides
	UDP            time.Duration // one way
	UDPAnswered    time.Duration
	Other          time.Duration // ICMP echo, SCTP and the rest
	Fragment       time.Duration // ports of a first fragment are remembered so long
	Grace          time.Duration // from a change of policy until a live flow that it denies is cut
}

// DefaultTimeouts are those of a node whose watcher has not set others. A TCP connection that was idle
// for longer is not cut: its next packet is judged by the rules, whoever sends it.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		TCPSyn:         60 * time.Second,
		TCPEstablished: 6 * time.Hour,
		TCPClosing:     30 * time.Second,
		UDP:            30 * time.Second,
		UDPAnswered:    180 * time.Second,
		Other:          180 * time.Second,
		Fragment:       30 * time.Second,
		Grace:          time.Second,
	}
}

// stamps converts to the units and the order of struct node.
func (t Timeouts) stamps() (s [8]uint32) {
	for i, d := range map[int]time.Duration{
		bpf.TimeoutTCPSyn:         t.TCPSyn,
		bpf.TimeoutTCPEstablished: t.TCPEstablished,
		bpf.TimeoutTCPClosing:     t.TCPClosing,
		bpf.TimeoutUDP:            t.UDP,
		bpf.TimeoutUDPAnswered:    t.UDPAnswered,
		bpf.TimeoutOther:          t.Other,
		bpf.TimeoutFragment:       t.Fragment,
		bpf.TimeoutGrace:          t.Grace,
	} {
		s[i] = bpf.Stamp(d)
	}
	return s
}
