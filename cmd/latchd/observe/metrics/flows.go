package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/enforce"
)

var (
	flowEntries = prometheus.NewDesc("latch_flow_table_entries",
		"Live flows in the connection tables, looked at every 5 s.", flowLabels, nil)
	flowCapacity = prometheus.NewDesc("latch_flow_table_capacity_entries",
		"Flows that the connection tables have room for.", flowLabels, nil)
	flowEvictions = prometheus.NewDesc("latch_flow_evictions_total",
		"Flows that are no longer in the connection tables, by cause. Counted in the kernel, over restarts of latchd.", []string{"family", "table", "cause"}, nil)
	fragEntries = prometheus.NewDesc("latch_fragment_table_entries",
		"Datagrams whose fragments are on their way, looked at every 5 s.", fragLabels, nil)
	fragCapacity = prometheus.NewDesc("latch_fragment_table_capacity_entries",
		"Datagrams that the tables of first fragments have room for.", fragLabels, nil)
	fragEvictions = prometheus.NewDesc("latch_fragment_evictions_total",
		"Datagrams of which nothing is remembered any longer, by cause. Counted in the kernel, over restarts of latchd.", []string{"table", "cause"}, nil)

	flowLabels = []string{"family", "table"}
	fragLabels = []string{"table"}
)

// tableFull is the cause of what Linux has pushed out; the others are the names of bpf.End.
const tableFull = "table-full"

// flowTables tells of the tables that Linux makes room in, as the last Expire found them.
type flowTables struct{ found func() []enforce.Table }

// Describe implements prometheus.Collector.
func (f flowTables) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{flowEntries, flowCapacity, flowEvictions, fragEntries, fragCapacity, fragEvictions} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (f flowTables) Collect(c chan<- prometheus.Metric) {
	for _, t := range f.found() {
		entries, capacity, evictions, ends := flowEntries, flowCapacity, flowEvictions, bpf.Ends()
		var labels []string
		switch t.Table {
		case bpf.TableFlows4:
			labels = []string{"ipv4", "main"}
		case bpf.TableFlows6:
			labels = []string{"ipv6", "main"}
		case bpf.TableSpill4:
			labels = []string{"ipv4", "spill"}
		case bpf.TableSpill6:
			labels = []string{"ipv6", "spill"}
		case bpf.TableFrags, bpf.TableFragSpill:
			entries, capacity, evictions, ends = fragEntries, fragCapacity, fragEvictions, []bpf.End{bpf.EndExpired, bpf.EndPodGone}
			labels = []string{map[bpf.Table]string{bpf.TableFrags: "main", bpf.TableFragSpill: "spill"}[t.Table]}
		}
		c <- prometheus.MustNewConstMetric(entries, prometheus.GaugeValue, float64(t.Live), labels...)
		c <- prometheus.MustNewConstMetric(capacity, prometheus.GaugeValue, float64(t.Capacity), labels...)
		c <- prometheus.MustNewConstMetric(evictions, prometheus.CounterValue, float64(t.Pushed), append(labels, tableFull)...)
		for _, end := range ends {
			c <- prometheus.MustNewConstMetric(evictions, prometheus.CounterValue, float64(t.Ended[end]), append(labels, end.String())...)
		}
	}
}
