package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// flow identifies a probe of a round by its request packet; the source port is the round's.
type flow struct {
	src, dst netip.Addr
	target   Target
}

// round is one flight of probes and what was seen of it.
type round struct {
	*Prober
	port      uint16
	probes    []Probe
	index     map[flow]int
	endpoints []*Endpoint // everyone who takes part
	arrived   []bool
	answered  []bool
	open      int // probes not answered yet

	mu   sync.Mutex
	tcp  map[int]int       // descriptor -> probe, still connecting
	udp  map[*Endpoint]int // source -> descriptor
	echo map[*Endpoint]int // source -> raw ICMP descriptor
	fds  []int             // everything to close
}

func newRound(p *Prober, probes []Probe, port uint16) *round {
	r := &round{Prober: p, port: port, probes: probes, index: make(map[flow]int, len(probes)),
		arrived: make([]bool, len(probes)), answered: make([]bool, len(probes)), open: len(probes),
		tcp: map[int]int{}, udp: map[*Endpoint]int{}, echo: map[*Endpoint]int{}}
	seen := map[*Endpoint]bool{}
	for i, q := range probes {
		r.index[flow{q.From.Addr, q.To.Addr, q.Target}] = i
		for _, e := range []*Endpoint{q.From, q.To} {
			if !seen[e] {
				seen[e] = true
				r.endpoints = append(r.endpoints, e)
			}
		}
	}
	return r
}

// collect looks at all endpoints again and again until the wait is over.
func (r *round) collect(wait Wait) error {
	start := time.Now()
	last := start
	for {
		seen, err := r.look()
		if err != nil {
			return err
		}
		now := time.Now()
		if seen {
			last = now
		}
		if r.open == 0 || now.Sub(last) >= wait.Quiet || now.Sub(start) >= wait.Max {
			return r.complete()
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// complete fails if the kernel had to drop what a sniffer should have seen: then "did not arrive" means
// nothing.
func (r *round) complete() error {
	for _, e := range r.endpoints {
		dropped, err := e.sniff.Dropped()
		if err != nil {
			return err
		}
		if dropped > 0 {
			return fmt.Errorf("sniffer of %s missed %d packets", e.Name, dropped)
		}
	}
	return nil
}

// look takes in everything that waits and says whether there was anything of this round.
func (r *round) look() (bool, error) {
	seen := false
	for _, e := range r.endpoints {
		_, err := e.sniff.Drain(func(p Packet) { seen = r.request(p) || seen })
		if err != nil {
			return seen, err
		}
		e.echoUDP(r.buf[:])
		e.answerSCTP(r.buf[:], func(m sctpMessage) {
			if m.dport == r.port {
				seen = r.answer(flow{e.Addr, m.src, Target{SCTP, m.sport}}) || seen
			}
		})
	}
	for e, fd := range r.udp {
		for {
			_, from, err := unix.Recvfrom(fd, r.buf[:], 0)
			if err != nil {
				break
			}
			at := addrPort(from)
			seen = r.answer(flow{e.Addr, at.Addr(), Target{UDP, at.Port()}}) || seen
		}
	}
	for e, fd := range r.echo {
		for {
			from, id, found := readEchoReply(fd, r.buf[:])
			if !found {
				break
			}
			if id == r.port {
				seen = r.answer(flow{e.Addr, from, Target{Proto: ICMP}}) || seen
			}
		}
	}
	return r.handshakes() || seen, nil
}

// request notes a packet delivered to an endpoint, if it is the request of a probe.
func (r *round) request(p Packet) bool {
	if !p.Opens() {
		return false
	}
	f := flow{p.Src.Addr(), p.Dst.Addr(), Target{p.Proto, p.Dst.Port()}}
	if what, found := r.kept[p.Src.Port()][f]; found {
		r.Escaped = append(r.Escaped, what)
	}
	i, found := r.index[f]
	if !found {
		return false
	}
	if p.Src.Port() != r.port {
		if p.Src.Port() >= firstPort && p.Src.Port() < r.port {
			r.Late++
		}
		return false
	}
	r.arrived[i] = true
	if !p.Proto.answers() {
		r.answer(flow{p.Src.Addr(), p.Dst.Addr(), r.probes[i].Target})
	}
	return true
}

func (r *round) answer(f flow) bool {
	i, found := r.index[f]
	if !found || r.answered[i] {
		return false
	}
	r.answered[i] = true
	r.open--
	return true
}

// handshakes notes the TCP probes that are connected by now.
func (r *round) handshakes() bool {
	if len(r.tcp) == 0 {
		return false
	}
	polls := make([]unix.PollFd, 0, len(r.tcp))
	for fd := range r.tcp {
		polls = append(polls, unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT})
	}
	if n, err := unix.Poll(polls, 0); err != nil || n == 0 {
		return false
	}
	seen := false
	for _, p := range polls {
		if p.Revents == 0 {
			continue
		}
		fd := int(p.Fd)
		if errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && errno == 0 {
			q := r.probes[r.tcp[fd]]
			seen = r.answer(flow{q.From.Addr, q.To.Addr, q.Target}) || seen
		}
		delete(r.tcp, fd)
	}
	return seen
}

func (r *round) denied() map[flow]string {
	out := map[flow]string{}
	for i, q := range r.probes {
		if !r.answered[i] && !r.arrived[i] {
			out[flow{q.From.Addr, q.To.Addr, q.Target}] = fmt.Sprintf("%s -> %s %v", q.From.Name, q.To.Name, q.Target)
		}
	}
	return out
}

func (r *round) outcomes() []Outcome {
	out := make([]Outcome, len(r.probes))
	for i := range out {
		switch {
		case r.answered[i]:
			out[i] = Allowed
		case r.arrived[i]:
			out[i] = HalfOpen
		}
	}
	return out
}

// close ends every connection of the round. Clients go first: their RST is what the servers find.
func (r *round) close() {
	for _, fd := range slices.Backward(r.fds) {
		_ = unix.Close(fd)
	}
	for _, e := range r.endpoints {
		e.hangUp()
	}
}
