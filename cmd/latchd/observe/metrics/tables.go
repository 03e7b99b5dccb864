package metrics

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/identity"
)

var (
	mapEntries = prometheus.NewDesc("latch_map_entries",
		"Elements in use of the tables that can be full.", []string{"map"}, nil)
	mapCapacity = prometheus.NewDesc("latch_map_capacity_entries",
		"Elements that these tables have room for.", []string{"map"}, nil)
	generation = prometheus.NewDesc("latch_rules_generation",
		"Generation that the last change of rules on the node got.", nil, nil)
	flowEntries = prometheus.NewDesc("latch_flow_table_entries",
		"Flows in the connection table, counted once a minute. Expired ones stay until their place is needed.", []string{"family", "state"}, nil)
	flowCapacity = prometheus.NewDesc("latch_flow_table_capacity_entries",
		"Flows that the connection table has room for. When it is full the longest unused one makes room.", []string{"family"}, nil)
	ruleEntries = prometheus.NewDesc("latch_rule_entries",
		"Prefixes in the rules of all identifiers.", nil, nil)
	ruleEntriesMax = prometheus.NewDesc("latch_rule_entries_max",
		"Prefixes in the rules of the identifier that has most.", nil, nil)
)

// tables tells how full the kernel's tables are.
type tables struct {
	src   Sources
	flows *flowTables
}

// Describe implements prometheus.Collector.
func (t tables) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{mapEntries, mapCapacity, generation, flowEntries, flowCapacity} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (t tables) Collect(c chan<- prometheus.Metric) {
	if err := t.collect(c); err != nil {
		c <- prometheus.NewInvalidMetric(mapEntries, err)
	}
	t.flows.collect(c)
}

func (t tables) collect(c chan<- prometheus.Metric) error {
	maps := map[string]*ebpf.Map{}
	for _, name := range []string{"slots", "pod_state", "pod_state_hash", "counters", "node"} {
		if maps[name] = t.src.Map(name); maps[name] == nil {
			return errors.New("read tables: kernel objects are closed")
		}
	}
	fill := func(name string, used, capacity int) {
		c <- prometheus.MustNewConstMetric(mapEntries, prometheus.GaugeValue, float64(used), name)
		c <- prometheus.MustNewConstMetric(mapCapacity, prometheus.GaugeValue, float64(capacity), name)
	}
	slots, err := count(maps["slots"], func(s *bpf.Slot) bool { return atomic.LoadUint32(&s.Flags) != 0 })
	if err != nil {
		return err
	}
	fill("slots", slots, bpf.MaxSlots)
	pods, err := count(maps["pod_state"], func(p *bpf.PodState) bool { return atomic.LoadUint32(&p.Ifindex) != 0 })
	if err != nil {
		return err
	}
	fill("pod_state", pods, bpf.PodStateSize)
	hashed := 0
	it := maps["pod_state_hash"].Iterate()
	for key, value := uint32(0), (bpf.PodState{}); it.Next(&key, &value); {
		hashed++
	}
	if it.Err() == nil {
		fill("pod_state_hash", hashed, int(maps["pod_state_hash"].MaxEntries()))
	}
	counters := 0
	if err := eachCounter(maps["counters"], func(bpf.CounterKey, uint64) { counters++ }); err != nil {
		return err
	}
	fill("counters", counters, bpf.MaxCounters)
	var n bpf.Node
	if err := maps["node"].Lookup(uint32(0), &n); err != nil {
		return fmt.Errorf("read node: %w", err)
	}
	c <- prometheus.MustNewConstMetric(generation, prometheus.GaugeValue, float64(n.NextGeneration))
	return nil
}

// count counts the elements in use of an array.
func count[T any](m *ebpf.Map, used func(*T) bool) (n int, err error) {
	a, err := bpf.ViewArray[T](m)
	if err != nil {
		return 0, err
	}
	for i := range a.Len() {
		if used(a.At(i)) {
			n++
		}
	}
	return n, a.Close()
}

// flowTables are the numbers of flows, as they were counted last.
type flowTables struct {
	mu     sync.Mutex
	filled [2]flowFill // by family
}

type flowFill struct{ live, expired, capacity int }

// CountFlows counts the flows. It reads the tables as a whole: once a minute is plenty.
func (m *Metrics) CountFlows() error {
	s := m.verdicts.src
	node, v4, v6 := s.Map("node"), s.Map("flows4"), s.Map("flows6")
	if node == nil || v4 == nil || v6 == nil {
		return nil
	}
	var n bpf.Node
	if err := node.Lookup(uint32(0), &n); err != nil {
		return fmt.Errorf("count flows: %w", err)
	}
	var filled [2]flowFill
	var err4, err6 error
	filled[bpf.V4], err4 = countFlows(v4, &n.Timeouts, func(k *bpf.FlowKey4) uint8 { return k.Proto })
	filled[bpf.V6], err6 = countFlows(v6, &n.Timeouts, func(k *bpf.FlowKey6) uint8 { return k.Proto })
	m.flows.mu.Lock()
	defer m.flows.mu.Unlock()
	m.flows.filled = filled
	return errors.Join(err4, err6)
}

// countFlows reads a table in batches. What changes meanwhile may be missed or counted twice.
func countFlows[K any](m *ebpf.Map, timeouts *[8]uint32, proto func(*K) uint8) (flowFill, error) {
	fill := flowFill{capacity: int(m.MaxEntries())}
	err := bpf.Batches(m, func(keys []K, values []bpf.Flow) error {
		now := bpf.Now()
		for i := range keys {
			if values[i].IsOver(now, timeouts, proto(&keys[i])) {
				fill.expired++
			} else {
				fill.live++
			}
		}
		time.Sleep(time.Millisecond) // nobody waits for this
		return nil
	})
	if err != nil {
		err = fmt.Errorf("count flows: %w", err)
	}
	return fill, err
}

func (f *flowTables) collect(c chan<- prometheus.Metric) {
	f.mu.Lock()
	filled := f.filled
	f.mu.Unlock()
	for family, name := range []string{bpf.V4: "ipv4", bpf.V6: "ipv6"} {
		x := filled[family]
		if x.capacity == 0 {
			continue // not counted yet
		}
		c <- prometheus.MustNewConstMetric(flowEntries, prometheus.GaugeValue, float64(x.live), name, "live")
		c <- prometheus.MustNewConstMetric(flowEntries, prometheus.GaugeValue, float64(x.expired), name, "expired")
		c <- prometheus.MustNewConstMetric(flowCapacity, prometheus.GaugeValue, float64(x.capacity), name)
	}
}

// ruleSizes is how big the rules of each identifier are.
type ruleSizes struct{ *sizes }

type sizes struct {
	mu sync.Mutex
	of map[identity.Identifier]int
}

func newRuleSizes() ruleSizes { return ruleSizes{&sizes{of: map[identity.Identifier]int{}}} }

func (r ruleSizes) set(id identity.Identifier, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[id] = n; n == 0 {
		delete(r.of, id)
	}
}

// Describe implements prometheus.Collector.
func (r ruleSizes) Describe(c chan<- *prometheus.Desc) { c <- ruleEntries; c <- ruleEntriesMax }

// Collect implements prometheus.Collector.
func (r ruleSizes) Collect(c chan<- prometheus.Metric) {
	r.mu.Lock()
	sum, most := 0, 0
	for _, n := range r.of {
		sum, most = sum+n, max(most, n)
	}
	r.mu.Unlock()
	c <- prometheus.MustNewConstMetric(ruleEntries, prometheus.GaugeValue, float64(sum))
	c <- prometheus.MustNewConstMetric(ruleEntriesMax, prometheus.GaugeValue, float64(most))
}
