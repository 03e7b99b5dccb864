package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/spf13/pflag"

	"github.com/latch-cni/latch/cmd/latchd/observe/flowlog"
	"github.com/latch-cni/latch/cmd/latchd/observe/health"
	"github.com/latch-cni/latch/cmd/latchd/observe/metrics"
	"github.com/latch-cni/latch/cmd/latchd/statuspage"
	"github.com/latch-cni/latch/shared/enforce"
)

// observeOptions are the flags of what latchd tells about the node.
type observeOptions struct {
	healthAddr  string
	metricsAddr string
	statusAddr  string
	detail      string
	flowLog     flowlog.Options
	format      string
}

func (o *observeOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.healthAddr, "health-addr", ":8163", "address of /healthz and /readyz; empty = off")
	f.StringVar(&o.metricsAddr, "metrics-addr", ":8162", "address of /metrics; empty = off")
	f.StringVar(&o.statusAddr, "status-addr", "", "address of a read-only status page for browsers, on loopback unless it names a host; empty = off")
	f.StringVar(&o.detail, "metrics-detail", string(metrics.DetailNamespace), "by what drops and allows are told apart: node, namespace or identifier")
	l := &o.flowLog
	f.StringVar(&l.File, "flow-log", "", "file for a line about each denied packet, or stdout; empty = off, and without cost")
	f.StringVar(&o.format, "flow-log-format", string(flowlog.JSON), "json, or aws for the line of the AWS network policy agent")
	f.UintVar(&l.Allows, "flow-log-allows", 0, "log one of so many admitted flows, too; 0 = none, 1 = all")
	f.UintVar(&l.Rate, "flow-log-rate", 1000, "lines a second, half of them for one pod at most; 0 = no limit")
	f.UintVar(&l.Size, "flow-log-max-size", 50, "MiB of a file, which is rotated then")
	f.UintVar(&l.Files, "flow-log-files", 2, "rotated files that are kept, at least 1")
}

// check completes the options.
func (o *observeOptions) check(node string, n *enforce.NodeConfig) error {
	o.flowLog.Node, o.flowLog.Format = node, flowlog.Format(o.format)
	n.EventsDeny = o.flowLog.File != ""
	n.EventsAllow = n.EventsDeny && o.flowLog.Allows > 0
	errs := []error{o.flowLog.Check(), address("--health-addr", o.healthAddr), address("--metrics-addr", o.metricsAddr), address("--status-addr", o.statusAddr)}
	if _, err := metrics.ParseDetail(o.detail); err != nil {
		errs = append(errs, fmt.Errorf("--metrics-detail %w", err))
	}
	return errors.Join(errs...)
}

// address returns an error if an address cannot be one to listen on. Empty is off.
func address(flag, addr string) error {
	if addr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("%s %q: use HOST:PORT or :PORT", flag, addr)
	}
	return nil
}

// observation is what latchd tells about the node. Nothing of it is needed for enforcement.
type observation struct {
	opts    observeOptions
	log     *slog.Logger
	metrics *metrics.Metrics
	monitor *health.Monitor
	flows   *flowlog.Log // nil: off
	health  net.Listener // nil: off
	scrape  net.Listener // nil: off
	page    net.Listener // nil: off
	pages   http.Handler
}

// newObservation takes the addresses. One that is in use is an error now, before anything is changed.
func newObservation(o observeOptions, log *slog.Logger) (*observation, error) {
	ob := &observation{opts: o, log: log,
		metrics: metrics.New(metrics.Options{Version: version, Detail: metrics.Detail(o.detail)})}
	var err error
	if ob.health, err = listen("--health-addr", o.healthAddr); err != nil {
		return nil, err
	}
	if ob.scrape, err = listen("--metrics-addr", o.metricsAddr); err != nil {
		ob.close()
		return nil, err
	}
	if o.statusAddr == "" {
		return ob, nil
	}
	if ob.page, err = statuspage.Listen(o.statusAddr); err != nil {
		ob.close()
		return nil, fmt.Errorf("--status-addr %s: %w", o.statusAddr, err)
	}
	return ob, nil
}

func listen(flag, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, addr, err)
	}
	return l, nil
}

func (ob *observation) close() {
	for _, l := range []net.Listener{ob.health, ob.scrape, ob.page} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// watch connects it with the daemon, before that runs.
func (ob *observation) watch(d *daemon) error {
	kernelMap := d.enforcer.Map
	ob.pages = statuspage.Handler(statuspage.Options{Bpffs: d.opts.bpffs, StateDir: d.opts.stateDir, Version: version})
	ob.monitor = &health.Monitor{
		Inspector: &health.Inspector{Bpffs: d.opts.bpffs, StateDir: d.opts.stateDir, Failing: d.reconciler.Errors,
			Adopted: func() bool { return d.reconciler.Progress().Adopted }, NotAdopted: d.reconciler.NotAdopted},
		Progress: d.reconciler.Progress, Status: d.status, AuditPeriod: d.opts.auditPeriod,
	}
	src := metrics.Sources{
		Map: kernelMap, Store: d.store, Progress: d.reconciler.Progress,
		Failing: func() int { return len(d.reconciler.Errors()) },
		Ready: func() (bool, int) {
			st := d.status()
			return st.Ready, len(st.Problems)
		},
		Inspection: ob.monitor.Inspector.Found,
		Tables:     d.enforcer.Tables,
	}
	if ob.opts.flowLog.File != "" {
		var err error
		ob.flows, err = flowlog.Open(ob.opts.flowLog, d.store, func() *ebpf.Map { return kernelMap("events") }, ob.log)
		if err != nil {
			return err
		}
		src.FlowLog = ob.flows.Stats
	}
	ob.metrics.Start(src)
	d.reconciler.Observe(ob.metrics.Observer())
	return nil
}

// run serves until the context ends.
func (ob *observation) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	// The end does not wait for an inspection. It looks at every attachment that is out of order for half a
	// second, and there may be hundreds; it changes nothing.
	go ob.monitor.Inspector.Run(ctx, ob.monitor.AuditPeriod)
	if ob.flows != nil {
		wg.Go(func() { ob.flows.Run(ctx) })
	}
	if ob.health != nil {
		wg.Go(func() { ob.serve(ctx, ob.health, ob.monitor.Handler()) })
	}
	if ob.page != nil {
		wg.Go(func() { ob.serve(ctx, ob.page, ob.pages) })
	}
	if ob.scrape == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", ob.metrics.Handler())
	wg.Go(func() { ob.serve(ctx, ob.scrape, mux) })
}

func (ob *observation) serve(ctx context.Context, l net.Listener, h http.Handler) {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(ob.log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		ob.log.Error("serve", "address", l.Addr(), "error", err)
	}
}
