package probe

import (
	"fmt"
	"time"
)

// Wait says how long a round collects. It ends at once when every probe was answered, else when no
// packet came for Quiet, at the latest after Max.
type Wait struct {
	Quiet, Max time.Duration
}

// Waits for looking while things change, and for being sure.
var (
	Glance  = Wait{Quiet: 30 * time.Millisecond, Max: 500 * time.Millisecond}
	Careful = Wait{Quiet: 120 * time.Millisecond, Max: 2 * time.Second}
)

const firstPort, lastPort = 10000, 64999

// Prober sends rounds of probes. It is for one goroutine. Endpoints that share packets must be
// probed by one Prober only, since it alone knows which source ports are used up.
type Prober struct {
	// Rounds, and Late: packets of an earlier round, after that round was judged. A late packet
	// means that Quiet is too short for the machine.
	Rounds, Late int

	// Escaped are the requests of kept rounds that were taken for denied and arrived after all, as
	// "a -> b TCP/80".
	Escaped []string

	next   int
	used   map[uint16]bool
	denied map[flow]string            // of the last round
	last   uint16                     // its port
	kept   map[uint16]map[flow]string // by port
	buf    [256]byte
}

// New makes a Prober.
func New() *Prober {
	return &Prober{next: firstPort, used: map[uint16]bool{}, kept: map[uint16]map[flow]string{}}
}

// Keep makes the last round one whose verdicts stand: what it has found denied must not arrive later.
func (p *Prober) Keep() { p.kept[p.last] = p.denied }

// Round sends all probes at once and returns their outcomes, in the order of the probes.
func (p *Prober) Round(probes []Probe, wait Wait) ([]Outcome, error) {
	for _, q := range probes {
		p.used[q.Port] = true
		if err := q.To.Listen(q.Target); err != nil {
			return nil, err
		}
	}
	port, err := p.port()
	if err != nil {
		return nil, err
	}
	r := newRound(p, probes, port)
	defer r.close()
	if err := r.send(); err != nil {
		return nil, fmt.Errorf("send probes: %w", err)
	}
	if err := r.collect(wait); err != nil {
		return nil, fmt.Errorf("collect probes: %w", err)
	}
	p.Rounds++
	p.last, p.denied = port, r.denied()
	return r.outcomes(), nil
}

// port takes the next source port that nobody probes.
func (p *Prober) port() (uint16, error) {
	for p.next <= lastPort {
		port := uint16(p.next)
		p.next++
		if !p.used[port] {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no source port left after %d rounds", p.Rounds)
}
