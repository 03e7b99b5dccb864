package source

import (
	"context"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// nodeRetry is the pause after addresses could not be put into use.
const nodeRetry = time.Second

// addresses are the node's addresses on their way from the Node object into use.
type addresses struct {
	mu      sync.Mutex
	latest  []netip.Addr
	news    chan struct{} // holds a token when latest changed
	changed chan struct{} // closed and replaced when they came into use
}

func newAddresses() *addresses {
	return &addresses{news: make(chan struct{}, 1), changed: make(chan struct{})}
}

// nodeChanged reads the Node object. Without addresses, or without the object, those known stay.
func (a *addresses) nodeChanged(upserted []apis.Object) {
	for _, o := range upserted {
		addrs := addrsOf(o.(*corev1.Node))
		if len(addrs) == 0 {
			continue
		}
		a.mu.Lock()
		a.latest = addrs
		a.mu.Unlock()
		select {
		case a.news <- struct{}{}:
		default:
		}
	}
}

// next returns a channel that is closed when other addresses come into use.
func (a *addresses) next() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// useAddresses hands new addresses to the sink before anything is trimmed by them.
func (s *Source) useAddresses(ctx context.Context) {
	known := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.addresses.news:
		}
		s.addresses.mu.Lock()
		addrs := s.addresses.latest
		s.addresses.mu.Unlock()
		for {
			err := s.sink.NodeAddrs(ctx, addrs)
			if ctx.Err() != nil {
				return
			}
			s.note("addresses of the node", err)
			if err == nil {
				break
			}
			sleep(ctx, nodeRetry)
		}
		if !s.scope.setAddrs(addrs) {
			continue
		}
		s.log.Info("node addresses", "addresses", addrs)
		if !known {
			known = true
			close(s.progress.node)
			s.settle()
			continue
		}
		s.addresses.mu.Lock()
		close(s.addresses.changed)
		s.addresses.changed = make(chan struct{})
		s.addresses.mu.Unlock()
	}
}
