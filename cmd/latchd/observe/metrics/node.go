package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latch-cni/latch/cmd/latchd/observe/flowlog"
	"github.com/latch-cni/latch/cmd/latchd/observe/health"
)

var (
	attachments = prometheus.NewDesc("latch_attachments",
		"Attachments of pods on the node, by state.", []string{"state"}, nil)
	ready = prometheus.NewDesc("latch_ready",
		"1 when /readyz says so: synced, everything verified, every attachment in force.", nil, nil)
	problems = prometheus.NewDesc("latch_policy_problems",
		"Problems with objects that could not be taken as they are.", nil, nil)
	failing = prometheus.NewDesc("latch_failing_identifiers",
		"Identifiers whose last run failed: they have the rules that they had before.", nil, nil)
	queued = prometheus.NewDesc("latch_reconcile_queue_length",
		"Identifiers that wait for a worker.", nil, nil)
	pending = prometheus.NewDesc("latch_oldest_pending_change_seconds",
		"Age of the oldest change of policy or pods that is not in force yet; 0 when there is none.", nil, nil)
	audit = prometheus.NewDesc("latch_audit_last_timestamp_seconds",
		"When the last round of the audit ended; 0 before the first.", nil, nil)

	logged = prometheus.NewDesc("latch_flow_log_lines_total",
		"Lines written to the flow log.", []string{"verdict"}, nil)
	suppressed = prometheus.NewDesc("latch_flow_log_suppressed_total",
		"Events that were read and not written to the flow log, by cause.", []string{"cause"}, nil)
)

// node is how latchd is.
type node struct{ src Sources }

// Describe implements prometheus.Collector.
func (n node) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{attachments, ready, problems, failing, queued, pending, audit} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (n node) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counts := n.src.Inspection().Counts()
	for _, state := range health.States() {
		gauge(attachments, float64(counts[state]), string(state))
	}
	isReady, found := n.src.Ready()
	value := 0.
	if isReady {
		value = 1
	}
	gauge(ready, value)
	gauge(problems, float64(found))
	gauge(failing, float64(n.src.Failing()))
	p := n.src.Progress()
	gauge(queued, float64(p.Queue))
	gauge(pending, p.Oldest.Seconds())
	at := 0.
	if !p.Audited.IsZero() {
		at = float64(p.Audited.UnixMilli()) / 1000
	}
	gauge(audit, at)
}

// flowLog is what the flow log writes and leaves out.
type flowLog struct{ stats func() flowlog.Stats }

// Describe implements prometheus.Collector.
func (f flowLog) Describe(c chan<- *prometheus.Desc) { c <- logged; c <- suppressed }

// Collect implements prometheus.Collector.
func (f flowLog) Collect(c chan<- prometheus.Metric) {
	s := f.stats()
	number := func(d *prometheus.Desc, n uint64, label string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), label)
	}
	number(logged, s.Denies, "deny")
	number(logged, s.Allows, "allow")
	number(suppressed, s.Limited, "rate")
	number(suppressed, s.Sampled, "sampling")
	number(suppressed, s.Failed, "write")
}
