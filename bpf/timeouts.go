package bpf

import "time"

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

// DefaultTimeouts are those of new maps, and of a watcher that is told no others. A TCP connection that was
// idle for longer is not cut: its next packet is judged by the rules, whoever sends it.
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

// Stamps converts to the units and the order of struct node.
func (t Timeouts) Stamps() (s [8]uint32) {
	for i, d := range map[int]time.Duration{
		TimeoutTCPSyn:         t.TCPSyn,
		TimeoutTCPEstablished: t.TCPEstablished,
		TimeoutTCPClosing:     t.TCPClosing,
		TimeoutUDP:            t.UDP,
		TimeoutUDPAnswered:    t.UDPAnswered,
		TimeoutOther:          t.Other,
		TimeoutFragment:       t.Fragment,
		TimeoutGrace:          t.Grace,
	} {
		s[i] = Stamp(d)
	}
	return s
}
