package metrics

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

const (
	// maxScopes bounds the number of namespaces or identifiers that are told apart. Those that come when
	// all places are taken share one.
	maxScopes = 500
	// scopeAge is how long a scope whose rule sets are gone is remembered after it last counted.
	scopeAge = 15 * time.Minute
)

// Names of scopes that are no namespaces; such names no namespace can have.
const (
	scopeDefaultAllow = "(default-allow)" // pods about which nothing is known
	scopeDefaultDeny  = "(default-deny)"
	scopeNone         = "(none)"  // interfaces that are bound to no rules
	scopeOther        = "(other)" // beyond maxScopes
)

var (
	dropped = prometheus.NewDesc("latch_dropped_packets_total",
		"Packets that were dropped, by direction in the pod's view and reason.", verdictLabels, nil)
	allowed = prometheus.NewDesc("latch_allowed_packets_total",
		"Packets that were judged and allowed: the first of each flow, and those that belong to none. Packets of known flows are not counted.", verdictLabels, nil)
	lostEvents = prometheus.NewDesc("latch_events_lost_total",
		"Verdict events that found no room in the kernel's ring buffer. Counters do not lose anything.", []string{"direction"}, nil)
	podInfo = prometheus.NewDesc("latch_pod_info",
		"1, for each attachment of a pod, with its identifier. Only with --metrics-detail=identifier.", []string{"namespace", "pod", "identifier", "state"}, nil)
	policyInfo = prometheus.NewDesc("latch_policy_info",
		"1, for each policy that selects an identifier. Only with --metrics-detail=identifier.", []string{"identifier", "kind", "policy_namespace", "policy"}, nil)
	verdictLabels = []string{"direction", "reason", "namespace", "identifier"}
)

// scope is what verdicts are told apart by.
type scope struct{ namespace, identifier string }

type series struct {
	scope
	dir, reason, allow uint8
}

// verdicts are the totals of the kernel's counters.
type verdicts struct {
	detail Detail

	mu     sync.Mutex // also held while counters are deleted
	src    Sources
	began  bool
	last   map[bpf.CounterKey]uint64 // what was added already
	scopes map[uint32]scope          // by slot
	used   map[scope]time.Time       // when it last counted
	totals map[series]uint64
	lost   [2]uint64
}

func newVerdicts(d Detail) *verdicts {
	return &verdicts{detail: d, last: map[bpf.CounterKey]uint64{}, scopes: map[uint32]scope{}, used: map[scope]time.Time{}, totals: map[series]uint64{}}
}

// start notes what the counters are now: totals are what comes on top.
func (v *verdicts) start(s Sources) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.src = s
	_ = v.read(false) // the next reading will do
	v.began = true
}

// free adds up the counters of slots, has them deleted and forgets them.
func (v *verdicts) free(slots []uint32, drop func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.src.Map != nil {
		_ = v.read(true)
	}
	err := drop()
	for key := range v.last {
		if slices.Contains(slots, key.Slot) {
			delete(v.last, key)
		}
	}
	for _, slot := range slots {
		delete(v.scopes, slot)
	}
	return err
}

// read adds what each counter has grown since it was read last. The counters of a slot whose record is
// about to be written wait for the next reading, unless this is the last one.
func (v *verdicts) read(final bool) error {
	m := v.src.Map("counters")
	if m == nil {
		return errors.New("read counters: kernel objects are closed")
	}
	return eachCounter(m, func(key bpf.CounterKey, now uint64) {
		s, ok := v.scopeOf(key.Slot)
		if !ok && !final {
			return
		}
		grown := now - v.last[key]
		if now < v.last[key] { // another map, or deleted by somebody else
			grown = now
		}
		v.last[key] = now
		if !v.began {
			grown = 0
		}
		if key.Slot == bpf.CounterLostEvents {
			v.lost[key.Dir&1] += grown
			return
		}
		if grown > 0 {
			v.used[s] = time.Now()
		}
		v.totals[series{s, key.Dir & 1, key.Reason, key.Allow & 1}] += grown
	})
}

// eachCounter calls fn with each counter, summed over the CPUs.
func eachCounter(m *ebpf.Map, fn func(bpf.CounterKey, uint64)) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("read counters: %w", err)
	}
	const batch = bpf.MaxCounters / 8
	keys, values := make([]bpf.CounterKey, batch), make([]uint64, batch*cpus)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read counters: %w", err)
		}
		for i := range n {
			var sum uint64
			for _, value := range values[i*cpus : (i+1)*cpus] {
				sum += value
			}
			fn(keys[i], sum)
		}
		if err != nil {
			return nil
		}
	}
}

// scopeOf tells whose a slot is. It stays so until the slot is freed.
func (v *verdicts) scopeOf(slot uint32) (scope, bool) {
	if s, ok := v.scopes[slot]; ok {
		return s, true
	}
	s, ok := v.find(slot)
	if !ok {
		return scope{namespace: scopeOther}, false
	}
	if _, known := v.used[s]; !known {
		if len(v.used) >= maxScopes {
			s = scope{namespace: scopeOther}
		}
		v.used[s] = time.Now()
		for dir := range uint8(2) { // the series that everybody looks at begins before the first drop
			v.totals[series{scope: s, dir: dir, reason: uint8(bpf.ReasonPolicy)}] += 0
		}
	}
	v.scopes[slot] = s
	return s, true
}

func (v *verdicts) find(slot uint32) (scope, bool) {
	if v.detail == DetailNode {
		return scope{}, true
	}
	switch slot {
	case bpf.SlotDefaultAllow:
		return scope{namespace: scopeDefaultAllow}, true
	case bpf.SlotDefaultDeny:
		return scope{namespace: scopeDefaultDeny}, true
	case bpf.CounterNoSlot, bpf.CounterLostEvents:
		return scope{namespace: scopeNone}, true
	}
	var h bpf.Slot
	if m := v.src.Map("slots"); m == nil || m.Lookup(slot, &h) != nil {
		return scope{}, false
	}
	id := identity.FromBytes(h.Identifier)
	rec, err := v.src.Store.ReadIdentifier(id)
	if err != nil {
		return scope{}, false
	}
	s := scope{namespace: rec.Namespace}
	if v.detail == DetailIdentifier {
		s.identifier = string(id)
	}
	return s, true
}

// prune forgets scopes whose rule sets are gone and that have not counted for a while.
func (v *verdicts) prune() {
	live := map[scope]bool{}
	for _, s := range v.scopes {
		live[s] = true
	}
	gone := map[scope]bool{}
	for s, at := range v.used {
		if !live[s] && time.Since(at) > scopeAge {
			gone[s] = true
			delete(v.used, s)
		}
	}
	if len(gone) == 0 {
		return
	}
	for key := range v.totals {
		if gone[key.scope] {
			delete(v.totals, key)
		}
	}
}

// Describe implements prometheus.Collector.
func (v *verdicts) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{dropped, allowed, lostEvents, podInfo, policyInfo} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (v *verdicts) Collect(c chan<- prometheus.Metric) {
	found, err := v.collect()
	for _, metric := range found {
		c <- metric
	}
	if err != nil {
		c <- prometheus.NewInvalidMetric(dropped, err)
	}
	if v.detail == DetailIdentifier {
		v.info(c)
	}
}

func (v *verdicts) collect() ([]prometheus.Metric, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	err := v.read(false)
	v.prune()
	var found []prometheus.Metric
	for key, total := range v.totals {
		desc := dropped
		if key.allow != 0 {
			desc = allowed
		}
		found = append(found, prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(total),
			policy.Direction(key.dir).String(), bpf.Reason(key.reason).String(), key.namespace, key.identifier))
	}
	for dir, n := range v.lost {
		found = append(found, prometheus.MustNewConstMetric(lostEvents, prometheus.CounterValue, float64(n), policy.Direction(dir).String()))
	}
	return found, err
}

// info tells which pods and policies an identifier stands for.
func (v *verdicts) info(c chan<- prometheus.Metric) {
	told := map[[4]string]bool{}
	for _, p := range v.src.Inspection().Pods {
		key := [4]string{p.Namespace, p.Name, p.Identifier, string(p.State)}
		if told[key] {
			continue // another attachment of the same pod
		}
		told[key] = true
		c <- prometheus.MustNewConstMetric(podInfo, prometheus.GaugeValue, 1, p.Namespace, p.Name, p.Identifier, string(p.State))
	}
	recs, _ := v.src.Store.ListIdentifiers() // what cannot be read is the audit's to tell
	for _, rec := range recs {
		for _, p := range rec.Policies {
			c <- prometheus.MustNewConstMetric(policyInfo, prometheus.GaugeValue, 1, string(rec.Identifier), p.Kind, p.Namespace, p.Name)
		}
	}
}
