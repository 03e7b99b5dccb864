package adopt

import (
	"net/netip"
	"sync"

	"github.com/latch-cni/latch/shared/enforce"
)

// Shared lists live flows for many who ask at the same time. One dump of what the kernel tracks serves all
// who asked before it began, and nobody who asked later: a flow that was there when it was asked for is in
// the answer. The zero value is ready for use.
type Shared struct {
	turn sync.Mutex // held by the dump that runs

	mu    sync.Mutex
	next  *dumping // has not begun; nil if nobody waits
	dumps int
}

// dumping is a dump for some addresses.
type dumping struct {
	addrs map[netip.Addr]bool
	done  chan struct{}

	// Set when it is done.
	flows map[netip.Addr][]enforce.Flow
	err   error
}

// Flows is Flows of the package.
func (s *Shared) Flows(addrs []netip.Addr) ([]enforce.Flow, error) {
	s.mu.Lock()
	d, first := s.next, s.next == nil
	if first {
		d = &dumping{addrs: map[netip.Addr]bool{}, done: make(chan struct{}), flows: map[netip.Addr][]enforce.Flow{}}
		s.next = d
	}
	for _, a := range addrs {
		d.addrs[a] = true
	}
	s.mu.Unlock()
	if first {
		s.run(d)
	}
	<-d.done
	var flows []enforce.Flow
	for _, a := range addrs {
		flows = append(flows, d.flows[a]...)
	}
	return flows, d.err
}

// run waits until the dump before has ended, during which others join.
func (s *Shared) run(d *dumping) {
	s.turn.Lock()
	defer s.turn.Unlock()
	defer close(d.done)
	s.mu.Lock()
	s.next = nil
	s.dumps++
	s.mu.Unlock()
	var flows []enforce.Flow
	flows, d.err = Flows(d.addrs)
	for _, f := range flows {
		d.flows[f.Local.Addr()] = append(d.flows[f.Local.Addr()], f)
	}
}
