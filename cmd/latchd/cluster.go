package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/latch-cni/latch/cmd/latchd/announce"
	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/source"
	"github.com/latch-cni/latch/shared/state"
)

// cluster brings what an API server says into the world.
type cluster struct {
	*daemon
	source *source.Source
	teller *announce.Announcer // nil: tells nothing
}

func newCluster(d *daemon) (*cluster, error) {
	klog.SetSlogLogger(slog.New(aside{d.log.Handler()}))
	c := &cluster{daemon: d}
	opts := source.Options{
		Kubeconfig: d.opts.kubeconfig, QPS: d.opts.apiQPS, Burst: d.opts.apiBurst,
		Node: d.opts.nodeName, NodeAddrs: d.opts.nodeIPs, Log: d.log,
	}
	if d.opts.podCondition {
		opts.Condition = announce.Condition
	}
	var err error
	c.source, err = source.New(opts, c)
	if errors.Is(err, source.ErrNoServer) {
		return nil, fmt.Errorf("%w: use --kubeconfig, or --policy-dir to do without an API server", err)
	}
	if err == nil && (d.opts.kubeEvents || d.opts.podCondition) {
		err = c.newTeller(opts)
	}
	return c, err
}

// newTeller makes what tells the cluster how the node's pods stand.
func (c *cluster) newTeller(o source.Options) error {
	client, err := source.Writer(o)
	if err != nil {
		return err
	}
	inspector := c.observation.monitor.Inspector
	c.teller = announce.New(announce.Options{
		Client: client, Node: c.opts.nodeName, Events: c.opts.kubeEvents, Condition: c.opts.podCondition, Log: c.log,
	}, announce.Sources{
		Found: inspector.Found, Look: inspector.Look, Failing: c.reconciler.Errors, Behind: c.reconciler.Behind,
		Desired: c.world.Desired, Troubles: c.world.Troubles, PolicyUID: c.world.PolicyUID, Members: c.store.Members,
	})
	observer := c.observation.metrics.Observer()
	observer.Repaired = c.teller.Repaired
	attached := observer.Attached
	observer.Attached = func(took time.Duration) {
		attached(took)
		c.teller.Attached()
	}
	c.reconciler.Observe(observer)
	return nil
}

func (c *cluster) follow(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if c.teller != nil {
		wg.Go(func() { c.teller.Run(ctx) })
	}
	c.source.Run(ctx)
	return nil
}

// failed tells of an ADD that failed.
func (c *cluster) failed(f state.Failure) {
	if c.teller != nil {
		c.teller.Failed(f)
	}
}

// Change takes over what changed.
func (c *cluster) Change(upserted, deleted []apis.Object) {
	if c.teller != nil {
		c.teller.Change(upserted, deleted)
	}
	c.reconciler.Enqueue(c.world.Upsert(upserted...)...)
	c.reconciler.Enqueue(c.world.Delete(deleted...)...)
}

// Synced lets the reconciler begin.
func (c *cluster) Synced(complete ...string) {
	c.reconciler.Enqueue(c.world.Synced(complete...)...)
	c.once.Do(func() { close(c.synced) })
}

// Orphans names the policies that are missing.
func (c *cluster) Orphans(kind string) []apis.Ref { return c.world.Orphans(kind) }

// Gone takes a policy out of force that does not exist.
func (c *cluster) Gone(orphan apis.Ref, asked time.Time) {
	c.reconciler.Enqueue(c.world.Gone(orphan, asked)...)
}

// NodeAddrs puts the node's addresses into force.
func (c *cluster) NodeAddrs(ctx context.Context, addrs []netip.Addr) error {
	node := c.opts.node
	node.Addrs, node.KeepAddrs = addrs, false
	return c.enforcer.SetNode(ctx, node)
}

// report says how the connection to the API server is. Without one the node goes on as it is and stays
// ready: pods that are known can start.
func (c *cluster) report(st *state.Status) {
	s := c.source.Status()
	switch {
	case !s.Synced:
		st.Ready = false
		st.Message = "waiting for the API server: " + strings.Join(s.Missing, ", ")
	case !s.Away.IsZero():
		st.Message = "the API server cannot be followed since " + s.Away.Format(time.RFC3339) + "; what was known then stays in force"
	}
	for _, e := range s.Errors {
		st.Problems = append(st.Problems, state.Problem{Object: "API server", Message: e})
	}
	if c.teller != nil {
		if p := c.teller.Problem(); p != "" {
			st.Problems = append(st.Problems, state.Problem{Object: "API server", Message: p})
		}
	}
	for _, namespace := range s.Held {
		st.Problems = append(st.Problems, state.Problem{Object: "Namespace " + namespace, Message: "is not known: its pods wait for it"})
	}
}

// aside is where client-go logs: what matters of it is in the status, and logged when it changes.
type aside struct{ slog.Handler }

func (a aside) Enabled(ctx context.Context, _ slog.Level) bool {
	return a.Handler.Enabled(ctx, slog.LevelDebug)
}

func (a aside) Handle(ctx context.Context, r slog.Record) error {
	r.Level = min(r.Level, slog.LevelDebug)
	return a.Handler.Handle(ctx, r)
}

func (a aside) WithAttrs(attrs []slog.Attr) slog.Handler { return aside{a.Handler.WithAttrs(attrs)} }

func (a aside) WithGroup(name string) slog.Handler { return aside{a.Handler.WithGroup(name)} }
