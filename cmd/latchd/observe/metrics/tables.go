package metrics

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

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
	ruleEntries = prometheus.NewDesc("latch_rule_entries",
		"Prefixes in the rules of all identifiers.", nil, nil)
	ruleEntriesMax = prometheus.NewDesc("latch_rule_entries_max",
		"Prefixes in the rules of the identifier that has most.", nil, nil)
)

// tables tells how full the kernel's tables are.
type tables struct{ src Sources }

// Describe implements prometheus.Collector.
func (t tables) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{mapEntries, mapCapacity, generation} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (t tables) Collect(c chan<- prometheus.Metric) {
	if err := t.collect(c); err != nil {
		c <- prometheus.NewInvalidMetric(mapEntries, err)
	}
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
