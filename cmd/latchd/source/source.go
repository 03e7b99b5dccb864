package source

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// Options of a Source.
type Options struct {
	Kubeconfig string       // file, or empty for what Kubernetes puts into a pod
	QPS        float32      // requests a second
	Burst      int          // and in a row
	Node       string       // name, as in spec.nodeName
	NodeAddrs  []netip.Addr // if empty they are read from the Node object
	Condition  string       // of pods, that the sink wants to see; empty: none
	Log        *slog.Logger
}

// Sink takes what the source delivers. Its methods are called in sequence, but for NodeAddrs and Orphans.
type Sink interface {
	// Change takes over newer versions of objects and then takes others out. The objects are never
	// changed again.
	Change(upserted, deleted []apis.Object)
	// Synced says that everything has been delivered, and names the kinds of policies of which every
	// object is known. It is called again with each kind that is added later.
	Synced(complete ...string)
	// Orphans names the policies of a kind that the sink has endpoints objects of, and misses.
	Orphans(kind string) []apis.Ref
	// Gone says that an orphan does not exist: the API server was asked for it at a time or later.
	Gone(orphan apis.Ref, asked time.Time)
	// NodeAddrs puts the node's addresses into use. It is tried again after an error.
	NodeAddrs(ctx context.Context, addrs []netip.Addr) error
}

// Source follows an API server for a Sink. Make one with New, and Run it once.
type Source struct {
	log       *slog.Logger
	sink      Sink
	clients   clients
	kinds     []*kind
	progress  *progress
	scope     *scope
	addresses *addresses
	feed      *feed
}

// New finds out how to reach the API server. It does not talk to it yet. The error wraps ErrNoServer
// if nothing says where it is.
func New(o Options, sink Sink) (*Source, error) {
	cfg, err := restConfig(o)
	if err != nil {
		return nil, err
	}
	c, err := newClients(cfg)
	if err != nil {
		return nil, err
	}
	kinds := kindsOf(o.Node)
	if len(o.NodeAddrs) > 0 {
		kinds = slices.DeleteFunc(kinds, func(k *kind) bool { return k.name == kindNode })
	}
	s := &Source{
		log: o.Log, sink: sink, clients: c, kinds: kinds,
		progress: newProgress(kinds, time.Now), scope: newScope(), addresses: newAddresses(),
	}
	s.scope.condition = corev1.PodConditionType(o.Condition)
	s.feed = newFeed(sink, s.scope)
	if len(o.NodeAddrs) > 0 {
		s.scope.addrs = slices.Clone(o.NodeAddrs)
		close(s.progress.node)
	}
	return s, nil
}

// Run delivers to the sink until the context ends.
func (s *Source) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, k := range s.kinds {
		wg.Go(func() { s.follow(ctx, k) })
		if k.isPolicy {
			wg.Go(func() { s.judgeOrphans(ctx, k) })
		}
	}
	wg.Go(func() { s.discover(ctx) })
	wg.Go(func() { s.useAddresses(ctx) })
	wg.Wait()
}

// Status tells how the source is doing. It may be called at any time.
func (s *Source) Status() Status {
	st := s.progress.status()
	st.Held = s.feed.waitingFor()
	return st
}

// note takes down how a request went, and logs when the first one fails and when none does any more.
func (s *Source) note(name string, err error) {
	switch first, last := s.progress.note(name, err); {
	case first:
		s.log.Warn("the API server cannot be followed, what was known last stays in force", "resource", name, "error", err)
	case last:
		s.log.Info("the API server is followed again")
	}
}

// follow keeps one kind delivered, from when the API server has it.
func (s *Source) follow(ctx context.Context, k *kind) {
	st := &store{kind: k, scope: s.scope, objects: map[string]apis.Object{}, changed: s.feed.change}
	st.listed = func() { s.complete(k, len(st.objects)) }
	if k.name == kindNode {
		st.changed = func(upserted, _ []apis.Object) { s.addresses.nodeChanged(upserted) }
	}
	if !s.await(ctx, s.progress.exists[k]) || k.listsPods && !s.await(ctx, s.progress.node) {
		return
	}
	for ctx.Err() == nil {
		listed, cancel := context.WithCancel(ctx)
		if k.listsPods { // what was cut is lost: list again
			changed := s.addresses.next()
			go func() {
				if s.await(listed, changed) {
					cancel()
				}
			}()
		}
		s.watch(listed, st)
		cancel()
	}
}

func (s *Source) await(ctx context.Context, ready <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-ready:
		return true
	}
}

// complete notes that a kind has been delivered.
func (s *Source) complete(k *kind, objects int) {
	first, late := s.progress.complete(k)
	if !first {
		return
	}
	s.log.Info("listed", "resource", k.resource, "objects", objects)
	s.settle()
	if late && k.isPolicy {
		s.feed.synced([]string{k.name})
	}
}

// settle tells the sink, once, that everything has been delivered.
func (s *Source) settle() {
	if complete, now := s.progress.settle(); now {
		s.feed.synced(complete)
	}
}
