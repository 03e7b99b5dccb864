package runner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/probe"
	"github.com/latch-cni/latch/integration/scenario"
)

// worker plays scenarios on one node.
type worker struct {
	opts Options
	name string

	node   *harness.Node
	prober *probe.Prober
	self   map[bool]*probe.Endpoint // the node's, by "is IPv4"
	pods   map[string]*pod          // by uid
	files  map[string]bool          // in the policy directory
}

type pod struct {
	*harness.Sandbox
	*probe.Endpoint
}

// play takes work until there is none.
func (w *worker) play(ctx context.Context, work <-chan []*scenario.Scenario, results chan<- Result) (err error) {
	defer func() { err = errors.Join(err, w.tearDown()) }()
	if err := w.setUp(); err != nil {
		return err
	}
	for batch := range work {
		for _, s := range batch {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			results <- w.run(ctx, s)
			if err := w.revive(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *worker) setUp() error {
	w.prober, w.self, w.pods, w.files = probe.New(), map[bool]*probe.Endpoint{}, map[string]*pod{}, map[string]bool{}
	var err error
	w.node, err = harness.NewNode(harness.Config{Name: w.name, Addrs: nodeAddrs, Binaries: w.opts.Binaries,
		LatchdArgs: w.opts.LatchdArgs, LatchEntry: w.opts.LatchEntry, Keep: w.opts.Keep, WithoutLatch: w.opts.StandIn != nil})
	if err != nil {
		return err
	}
	for _, a := range nodeAddrs {
		if w.self[a.Is4()], err = probe.Open("node", w.node.NS, a); err != nil {
			return err
		}
	}
	return w.startLatchd()
}

func (w *worker) startLatchd() error {
	if w.opts.StandIn != nil {
		return nil
	}
	return w.node.StartLatchd()
}

// crashed says how latchd ended, if it did.
func (w *worker) crashed() error {
	if w.opts.StandIn != nil {
		return nil
	}
	return w.node.Latchd.Running()
}

// revive starts latchd again if it crashed, so that one scenario's crash is not held against the next.
func (w *worker) revive() error {
	if w.crashed() == nil {
		return nil
	}
	return w.startLatchd()
}

func (w *worker) tearDown() error {
	if w.node == nil {
		return nil
	}
	for _, e := range w.self {
		e.Close()
	}
	var errs []error
	for _, p := range w.pods {
		p.Endpoint.Close()
		errs = append(errs, w.node.CheckSandbox(context.Background(), p.Sandbox))
	}
	if w.node.Latchd != nil && w.crashed() != nil {
		w.node.Latchd = nil // its crash has been reported
	}
	return errors.Join(append(errs, w.node.Stop(context.Background()))...)
}

// run plays one scenario.
func (w *worker) run(ctx context.Context, s *scenario.Scenario) Result {
	begin := time.Now()
	r := Result{ID: s.ID, File: s.File}
	err := w.steps(ctx, s, &r)
	if crash := w.crashed(); crash != nil {
		err = errors.Join(err, crash)
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.Took = time.Since(begin)
	return r
}

func (w *worker) steps(ctx context.Context, s *scenario.Scenario, r *Result) error {
	if node := w.self[s.HostIP.Is4()]; node.Addr != s.HostIP {
		return fmt.Errorf("hostIP is %v, nodes here have %v", s.HostIP, node.Addr)
	}
	if len(s.Steps) == 0 {
		return errors.New("no steps")
	}
	ground := s.Ground()
	ground.Expect = allAllowed(s)
	for i := -1; i < len(s.Steps); i++ {
		st := ground
		if i >= 0 {
			st = s.State(i)
		}
		step, err := w.step(ctx, s, i, st)
		r.Steps = append(r.Steps, step)
		err = errors.Join(err, w.escaped())
		if err != nil {
			return fmt.Errorf("step %d (%s): %w", i, st.Description, err)
		}
		if i < 0 && len(step.Wrong) > 0 {
			return errors.New("without policies, not everything reaches everything: the steps would prove nothing")
		}
	}
	return nil
}

// escaped is an error when something arrived that an earlier step, perhaps of an earlier scenario, had found
// denied: its table was right only because nobody looked long enough.
func (w *worker) escaped() error {
	late := w.prober.Escaped
	if len(late) == 0 {
		return nil
	}
	w.prober.Escaped = nil
	return fmt.Errorf("%d requests arrived after a step that found them denied: %s", len(late), late[0])
}

// allAllowed is the table of the ground: every pod, every target of the first step, everything allowed.
func allAllowed(s *scenario.Scenario) *scenario.Expect {
	e := &scenario.Expect{Tables: map[string][]string{}}
	row := ""
	for _, p := range s.Pods {
		e.Order = append(e.Order, p.Key())
		row += string(scenario.Allow)
	}
	for _, t := range s.State(0).Expect.Targets() {
		rows := make([]string, len(s.Pods))
		for i := range rows {
			rows[i] = row
		}
		e.Tables[t.String()] = rows
	}
	return e
}

// syncPods deletes the sandboxes of pods that are no more, which must pass CHECK until then, and adds
// those of new pods.
func (w *worker) syncPods(ctx context.Context, want []scenario.Pod) error {
	keep := map[string]bool{}
	for _, p := range want {
		keep[p.UID()] = true
	}
	for uid, p := range w.pods {
		if keep[uid] {
			continue
		}
		delete(w.pods, uid)
		p.Endpoint.Close()
		if err := errors.Join(w.node.CheckSandbox(ctx, p.Sandbox), w.node.DelPod(ctx, p.Sandbox)); err != nil {
			return err
		}
	}
	for _, p := range want {
		if w.pods[p.UID()] != nil {
			continue
		}
		box, err := w.node.AddPod(ctx, harness.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID(), Addrs: []netip.Addr{p.IP}})
		if err != nil {
			return err
		}
		end, err := probe.Open(p.Key(), box.NS, p.IP)
		if err != nil {
			return errors.Join(err, w.node.DelPod(ctx, box))
		}
		w.pods[p.UID()] = &pod{box, end}
	}
	return nil
}
