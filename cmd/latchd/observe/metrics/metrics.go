package metrics

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/cmd/latchd/observe/flowlog"
	"github.com/latch-cni/latch/cmd/latchd/observe/health"
	"github.com/latch-cni/latch/cmd/latchd/reconcile"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// Detail is by what drops and allows are told apart, beside direction and reason.
type Detail string

// Details, with the series that they cost at most.
const (
	DetailNode       Detail = "node"       // nothing: 60
	DetailNamespace  Detail = "namespace"  // the pods' namespace: 60 for each
	DetailIdentifier Detail = "identifier" // the pods' identifier: 60 for each, and one for each pod and policy
)

// ParseDetail makes sure that a detail is one.
func ParseDetail(s string) (Detail, error) {
	switch d := Detail(s); d {
	case DetailNode, DetailNamespace, DetailIdentifier:
		return d, nil
	}
	return "", fmt.Errorf("%q: use node, namespace or identifier", s)
}

// Options of Metrics.
type Options struct {
	Version string
	Detail  Detail
}

// Sources are what metrics read. Functions are called by scrapes, at the same time.
type Sources struct {
	Map        func(name string) *ebpf.Map // nil when the node's objects are closed
	Store      state.Store
	Progress   func() reconcile.Progress
	Failing    func() int            // identifiers whose last run failed
	Ready      func() (bool, int)    // and the number of problems with objects
	Inspection func() health.Finding // newest
	FlowLog    func() flowlog.Stats  // nil without a flow log
	Tables     func() []enforce.Table
}

// Metrics is a registry. Make one with New, and give it its sources with Start when there are any.
type Metrics struct {
	registry *prometheus.Registry
	verdicts *verdicts
	rules    ruleSizes

	inForce, prepared, attached, reconciled, audited prometheus.Histogram
	retries, auditErrors                             prometheus.Counter
	diverged, failed                                 *prometheus.CounterVec
}

// Latencies reach from a change in place to a node that has been cut off.
var latencies = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// New makes the registry with everything that needs no source.
func New(o Options) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), verdicts: newVerdicts(o.Detail), rules: newRuleSizes(),
		inForce:     histogram("latch_policy_programming_duration_seconds", "From the moment a change of policy or labels is known until the kernel judges by it."),
		prepared:    histogram("latch_pod_preparation_duration_seconds", "From the moment a pod is known until its rules are in the kernel and its ADD can succeed."),
		attached:    histogram("latch_pod_attach_duration_seconds", "What the plugin's ADD takes from the record of its intent until the pod is in force."),
		reconciled:  histogram("latch_reconcile_duration_seconds", "One run for one identifier, the wait for its lock included."),
		audited:     histogram("latch_audit_duration_seconds", "One round of looking for what no record knows. The comparison of each identifier is a reconcile run."),
		retries:     counter("latch_reconcile_retries_total", "Runs that failed and were put back into the queue."),
		auditErrors: counter("latch_audit_errors_total", "Rounds of the audit in which something could not be read or removed."),
		diverged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "latch_audit_divergences_total",
			Help: "What was found not to be as it should be, and mended, by kind.",
		}, []string{"kind"}),
	}
	m.failed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "latch_pod_attach_failures_total",
		Help: "ADDs of the plugin that failed, by what it told the runtime. Of several of one pod within a second one counts.",
	}, []string{"cause"})
	for _, cause := range failures {
		m.failed.WithLabelValues(cause)
	}
	m.failed.WithLabelValues(otherFailure)
	for _, k := range kinds {
		m.diverged.WithLabelValues(k.kind)
	}
	m.registry.MustRegister(m.inForce, m.prepared, m.attached, m.reconciled, m.audited, m.retries, m.auditErrors, m.diverged, m.failed,
		m.rules, buildInfo(o.Version),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Start registers what comes from the sources. Call it once.
func (m *Metrics) Start(s Sources) {
	m.verdicts.start(s)
	m.registry.MustRegister(m.verdicts, tables{s}, flowTables{s.Tables}, node{s})
	if s.FlowLog != nil {
		m.registry.MustRegister(flowLog{s.FlowLog})
	}
}

// Registry is what is registered, for tests.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Handler serves /metrics. A source that fails costs its own metrics only.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, Registry: m.registry, MaxRequestsInFlight: 4, Timeout: 30 * time.Second,
	})
}

// FreeCounters is enforce.Config.FreeCounters.
func (m *Metrics) FreeCounters(slots []uint32, drop func() error) error {
	return m.verdicts.free(slots, drop)
}

// Observer is what the reconciler tells.
func (m *Metrics) Observer() reconcile.Observer {
	return reconcile.Observer{
		Reconciled: func(took time.Duration, err error) {
			m.reconciled.Observe(took.Seconds())
			if err != nil {
				m.retries.Inc()
			}
		},
		InForce:  func(waited time.Duration) { m.inForce.Observe(waited.Seconds()) },
		Prepared: func(waited time.Duration) { m.prepared.Observe(waited.Seconds()) },
		Attached: func(took time.Duration) { m.attached.Observe(took.Seconds()) },
		Diverged: func(what string) { m.diverged.WithLabelValues(kindOf(what)).Inc() },
		Audited: func(took time.Duration, err error) {
			m.audited.Observe(took.Seconds())
			if err != nil {
				m.auditErrors.Inc()
			}
		},
		Rules: func(id identity.Identifier, amount int) { m.rules.set(id, amount) },
	}
}

func histogram(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencies})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func buildInfo(version string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "latch_build_info", Help: "1, with what this build is.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version(), "layout": strconv.Itoa(bpf.Layout)},
	})
	g.Set(1)
	return g
}

// failures are causes of failed ADDs, by the codes of the specification that the plugin uses.
var failures = map[uint]string{
	types.ErrIncompatibleCNIVersion: "cni-version", types.ErrInvalidEnvironmentVariables: "environment",
	types.ErrInvalidNetworkConfig: "configuration", types.ErrTryAgainLater: "try-again-later", types.ErrInternal: "internal",
}

const otherFailure = "other"

// AddFailed counts a failed ADD by its code.
func (m *Metrics) AddFailed(code uint) {
	cause, ok := failures[code]
	if !ok {
		cause = otherFailure
	}
	m.failed.WithLabelValues(cause).Inc()
}
