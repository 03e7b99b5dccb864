package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/policydir"
	"github.com/latch-cni/latch/cmd/latchd/reconcile"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// serve follows policy until the context ends.
func serve(ctx context.Context, o options, log *slog.Logger) error {
	if err := lacking(toAttach, toOpen); err != nil {
		return err
	}
	around, err := startSurroundings(ctx, o, log) // first: another agent may have the addresses, too
	if err != nil {
		return err
	}
	defer around.stop()
	strange, err := notHere(o.nodeIPs)
	if err != nil {
		log.Warn("--node-ip is not checked", "error", err)
	}
	for _, ip := range strange {
		log.Warn("no interface of this node has this --node-ip: right if one gets it later, or if others translate it to an address that one has", "address", ip)
	}
	if o.policyDir != "" && len(o.nodeIPs) == 0 {
		log.Warn("no address of this node is known, as there is no --node-ip: what pods send to the node is judged by policy")
	}
	release, err := stayAlone("--state-dir", o.stateDir)
	if err != nil {
		return err
	}
	defer release()
	if err := pins.EnsureBPFFS(o.bpffs); err != nil {
		return err
	}
	releasePins, err := stayAlone("--bpffs", filepath.Dir(pins.New(o.bpffs).Root()))
	if err != nil {
		return err
	}
	defer releasePins()
	observation, err := newObservation(o.observe, log)
	if err != nil {
		return err
	}
	defer observation.close()
	e, err := enforce.Open(ctx, enforce.Config{
		Bpffs: o.bpffs, StateDir: o.stateDir, AttachMode: o.attachMode, LockTimeout: o.lockTimeout, Log: log, HoldLinks: true,
		Sizes: bpf.FlowTables(uint32(o.flowTableSize)), FreeLater: true, FreeCounters: observation.metrics.FreeCounters,
	})
	if err != nil {
		return fmt.Errorf("open the kernel's objects: %w", err)
	}
	defer func() { _ = e.Close() }()
	if err := e.Resize(ctx); err != nil {
		return err
	}
	if err := e.SetNode(ctx, o.node); err != nil {
		return err
	}
	if upgraded, err := e.Upgrade(ctx); err != nil {
		return err
	} else if upgraded {
		log.Info("programs of another build were replaced, interfaces follow one by one")
	}
	if err := e.Store().WriteSettings(o.settings()); err != nil {
		return err
	}
	w := world.New(world.Options{
		NodeName: o.nodeName, NodeIPs: o.nodeIPs, Mode: world.Mode(o.mode), PodsComplete: o.policyDir == "",
	})
	d := &daemon{opts: o, log: log, world: w, enforcer: e, reconciler: reconcile.New(w, e, log), around: around, observation: observation, store: e.Store(), synced: make(chan struct{})}
	if err := observation.watch(d); err != nil {
		return err
	}
	if before, err := d.store.ReadStatus(); err == nil {
		d.known, d.arrived = before.Known, before.Arrived
	}
	d.source = directory{d}
	if o.policyDir == "" {
		if err := d.store.DeleteManifests(); err != nil {
			return err
		}
		if d.source, err = newCluster(d); err != nil {
			return err
		}
	}
	return d.run(ctx)
}

// settings are the plugin's defaults on this node.
func (o options) settings() state.NodeSettings {
	return state.NodeSettings{
		EnforcingMode: o.mode,
		PolicyWait:    o.policyWait.String(),
		UnknownPods:   o.unknownPods,
		LockTimeout:   o.lockTimeout.String(),
		AttachMode:    string(o.attachMode),
		AntiSpoof:     &o.antiSpoof,
		FlowTableSize: o.flowTableSize,
		Bpffs:         o.bpffs,
		LogFile:       o.pluginLog.file,
		LogLevel:      o.pluginLog.level,
		FlowLog:       o.observe.flowLog.File,
		ConfDir:       o.install.ConfDir,
	}
}

// daemon wires the source of policy, the world and the reconciler.
type daemon struct {
	opts        options
	log         *slog.Logger
	world       *world.World
	enforcer    *enforce.Enforcer
	reconciler  *reconcile.Reconciler
	store       state.Store
	around      *surroundings
	observation *observation
	source      policySource

	once   sync.Once
	synced chan struct{} // closed after the first delivery
	known  bool          // a latchd before this one has read policy

	arrived time.Time // when Latch was installed, if pods ran already

	mu       sync.Mutex
	problems []apis.Problem
	places   map[string]written // of objects in a policy directory
}

func (d *daemon) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	source := make(chan error, 1)
	wg.Go(func() { source <- d.source.follow(ctx) })
	wg.Go(func() { d.world.Run(ctx, d.reconciler.Enqueue) })
	wg.Go(func() { d.reportStatus(ctx) })
	wg.Go(func() { d.observation.run(ctx) })
	wg.Go(func() { d.giveMemoryBack(ctx) })
	select {
	case <-d.synced:
	case err := <-source:
		return err
	}
	if err := d.reconciler.FindUnseen(); err != nil {
		d.log.Error("pods that Latch never saw are not adopted yet", "error", err)
	}
	n, err := d.reconciler.Adopt()
	if err != nil {
		d.log.Error("adopt: some records cannot be read", "error", err)
	}
	d.log.Info("adopting", "identifiers", n)
	wg.Go(func() { d.reconciler.Run(ctx, d.opts.workers) })
	wg.Go(func() { d.reconciler.Audit(ctx, d.opts.auditPeriod) })
	wg.Go(func() { d.expireFlows(ctx) })
	wg.Go(func() { d.reconciler.RetireLayouts(ctx) })
	wg.Go(func() {
		if err := d.reconciler.Follow(ctx); err != nil {
			d.log.Error("running without watching records, the audit finds what changes", "error", err)
		}
	})
	if d.opts.attachMode == attach.ModeAuto {
		wg.Go(func() { d.reconciler.Promote(ctx) })
	}
	return <-source
}

// policySource is where policy comes from.
type policySource interface {
	// follow brings policy into the world until the context ends.
	follow(ctx context.Context) error
	// report adds what is wrong with the source to the node's status.
	report(st *state.Status)
	// failed takes note of an ADD that failed.
	failed(f state.Failure)
}

// directory is the source of --policy-dir.
type directory struct{ d *daemon }

func (s directory) follow(ctx context.Context) error {
	return policydir.Watch(ctx, s.d.opts.policyDir, policydir.Options{Log: s.d.log, StateDir: s.d.opts.stateDir}, s.d.deliver)
}

// report adds nothing: deliver keeps the problems of the files.
func (directory) report(*state.Status) {}

// failed tells nobody: the plugin's log has it.
func (directory) failed(state.Failure) {}

// deliver takes over the policy directory's content.
func (d *daemon) deliver(s policydir.Snapshot) {
	ids := d.world.Replace(s.Objects)
	places := placesOf(s)
	d.mu.Lock()
	d.problems, d.places = s.Problems, places
	d.mu.Unlock()
	d.reconciler.SetUnread(s.Unread)
	d.once.Do(func() {
		ids = append(ids, d.world.Synced()...)
		close(d.synced)
	})
	d.reconciler.Enqueue(ids...)
}

// How often the node's status is written: others wait until it says that the node is ready.
const (
	statusPeriod   = time.Second
	unreadyPeriod  = 100 * time.Millisecond
	unreadyForLong = 10 * time.Second // then it is not about to change
)

// reportStatus keeps status.json current for STATUS and latchctl.
func (d *daemon) reportStatus(ctx context.Context) {
	began := time.Now()
	var told state.Status
	for {
		st := d.status()
		if err := d.store.WriteStatus(st); err != nil {
			d.log.Error("write status", "error", err)
		}
		d.tell(st, told)
		told = st
		d.keepSettings()
		d.takeFailures()
		d.observation.monitor.Beat()
		period := statusPeriod
		if !st.Ready && time.Since(began) < unreadyForLong {
			period = unreadyPeriod
		}
		select {
		case <-ctx.Done():
			stopped := d.status()
			stopped.Ready, stopped.Degraded, stopped.Stopped, stopped.Message = false, false, true, "latchd has stopped; what it left stays in force"
			if err := d.store.WriteStatus(stopped); err != nil {
				d.log.Error("write status", "error", err)
			}
			return
		case <-time.After(period):
		}
	}
}

// tell logs what has changed in the node's status: that it is ready or is not, and problems that have
// come or gone.
func (d *daemon) tell(now, before state.Status) {
	if now.Ready != before.Ready || (before.UpdatedAt.IsZero() && !now.Ready) {
		d.log.Info("status", "ready", now.Ready, "message", now.Message)
	}
	for _, p := range missing(before.Problems, now.Problems) {
		d.log.Warn("problem", "object", p.Object, "field", p.Field, "message", p.Message)
	}
	for _, p := range missing(now.Problems, before.Problems) {
		d.log.Info("problem is gone", "object", p.Object, "field", p.Field, "message", p.Message)
	}
}

// missing are those of some problems that are not among others. There may be one with every policy of a cluster.
func missing(from, some []state.Problem) (out []state.Problem) {
	if slices.Equal(from, some) {
		return nil
	}
	has := make(map[state.Problem]struct{}, len(from))
	for _, p := range from {
		has[p] = struct{}{}
	}
	for _, p := range some {
		if _, ok := has[p]; !ok {
			out = append(out, p)
		}
	}
	return out
}

// whereOf names the place of a problem: file, line and object, as far as each is known.
func whereOf(p apis.Problem) string {
	at := p.File
	if p.File != "" && p.Line > 0 {
		at = fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return strings.TrimSpace(at + " " + p.Object)
}

func (d *daemon) status() state.Status {
	st := state.Status{Ready: true, Node: d.opts.nodeName, Mode: d.opts.mode, UpdatedAt: time.Now()}
	d.mu.Lock()
	problems, places := append([]apis.Problem(nil), d.problems...), d.places
	d.mu.Unlock()
	for _, p := range append(problems, d.world.Problems()...) {
		p = placed(p, places)
		st.Problems = append(st.Problems, state.Problem{Object: whereOf(p), Field: p.Field, Message: p.Message})
	}
	st.Problems = append(st.Problems, d.around.problems()...)
	for _, p := range d.observation.monitor.Inspector.Found().Closed {
		st.Problems = append(st.Problems, state.Problem{Object: p.Object, Message: p.Message})
	}
	st.NotAdopted = d.reconciler.NotAdopted()
	if st.Known = d.known || d.world.HasSynced(); !st.Known {
		st.Arrived = d.arrived
	}
	if !d.world.HasSynced() {
		st.Ready, st.Message = false, "policy has not been read yet"
	}
	d.source.report(&st)
	others := st.Ready // what follows is about single pods: it must not keep the others from being started
	for id, err := range d.reconciler.Errors() {
		st.Ready, st.Message = false, "some identifiers are not up to date"
		st.Problems = append(st.Problems, state.Problem{Object: "identifier " + string(id), Message: fmt.Sprintf("%s: %v", d.reconciler.PodsOf(id), err)})
	}
	if reason := d.observation.monitor.Reason(); st.Ready && reason != "" {
		st.Ready, st.Message = false, reason
	}
	st.Degraded = others && !st.Ready
	return st
}
