package metrics

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	dto "github.com/prometheus/client_model/go"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/cmd/latchd/observe/flowlog"
	"github.com/latch-cni/latch/cmd/latchd/observe/health"
	"github.com/latch-cni/latch/cmd/latchd/reconcile"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// ground is metrics over the kernel's maps, without a node around them.
type ground struct {
	*Metrics
	t     testing.TB
	maps  map[string]*ebpf.Map
	store state.Store

	tables []enforce.Table
}

func newGround(t testing.TB, d Detail) *ground {
	t.Helper()
	testenv.RequireRoot(t)
	objects, err := bpf.Load(bpf.Sizes{Flows4: 1024, Flows6: 1024, Frags: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = objects.Close() })
	g := &ground{Metrics: New(Options{Version: "v1", Detail: d}), t: t, maps: objects.Maps, store: state.New(testenv.StateDir(t))}
	g.Start(Sources{
		Map: func(name string) *ebpf.Map { return g.maps[name] }, Store: g.store,
		Progress: func() reconcile.Progress { return reconcile.Progress{} },
		Failing:  func() int { return 0 },
		Ready:    func() (bool, int) { return true, 2 },
		Inspection: func() health.Finding {
			return health.Finding{Pods: []health.Pod{{Namespace: "t1", Name: "a", Identifier: string(idOf("t1")), State: health.Enforced}}}
		},
		FlowLog: func() flowlog.Stats { return flowlog.Stats{Denies: 3} },
		Tables:  func() []enforce.Table { return g.tables },
	})
	return g
}

func idOf(namespace string) identity.Identifier { return identity.Of(namespace, nil) }

// slot gives a slot to the identifier of a namespace.
func (g *ground) slot(slot uint32, namespace string) {
	g.t.Helper()
	id := idOf(namespace)
	if err := g.maps["slots"].Put(slot, &bpf.Slot{Flags: bpf.SlotUsed | bpf.SlotComplete, Identifier: id.Bytes()}); err != nil {
		g.t.Fatal(err)
	}
	rec := state.IdentifierRecord{Identifier: id, Namespace: namespace, Policies: []policy.PolicyRef{{Kind: "NetworkPolicy", Namespace: namespace, Name: "p"}}}
	if err := g.store.WriteIdentifier(rec); err != nil {
		g.t.Fatal(err)
	}
}

// count sets a counter, on all CPUs together.
func (g *ground) count(slot uint32, r bpf.Reason, allow uint8, n uint64) {
	g.t.Helper()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		g.t.Fatal(err)
	}
	perCPU := make([]uint64, cpus)
	perCPU[0], perCPU[cpus-1] = n, perCPU[cpus-1]+0
	if cpus > 1 {
		perCPU[0], perCPU[cpus-1] = n-n/3, n/3
	}
	if err := g.maps["counters"].Put(bpf.CounterKey{Slot: slot, Dir: bpf.Ingress, Reason: uint8(r), Allow: allow}, perCPU); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) drop(slot uint32) func() error {
	return func() error {
		for _, r := range bpf.Reasons() {
			for _, allow := range []uint8{0, 1} {
				err := g.maps["counters"].Delete(bpf.CounterKey{Slot: slot, Dir: bpf.Ingress, Reason: uint8(r), Allow: allow})
				if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
					return err
				}
			}
		}
		return nil
	}
}

func (g *ground) gather() map[string]*dto.MetricFamily {
	g.t.Helper()
	families, err := g.Registry().Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

// dropped sums drops with a namespace.
func (g *ground) dropped(namespace string) (sum float64) {
	g.t.Helper()
	for _, m := range g.gather()["latch_dropped_packets_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "namespace" && l.GetValue() == namespace {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// Whatever becomes of slots and their counters, totals rise by what was counted and by nothing else.
func TestTotalsAreMonotonic(t *testing.T) {
	g := newGround(t, DetailNamespace)
	want := func(namespace string, n float64) {
		t.Helper()
		if got := g.dropped(namespace); got != n {
			t.Errorf("%s: %v drops, want %v", namespace, got, n)
		}
	}
	g.slot(5, "t1")
	g.count(5, bpf.ReasonPolicy, 0, 100)
	want("t1", 100)
	want("t1", 100)
	g.count(5, bpf.ReasonPolicy, 0, 130)
	if err := g.FreeCounters([]uint32{5}, g.drop(5)); err != nil {
		t.Fatal(err)
	}
	want("t1", 130)
	g.slot(6, "t1") // where its pods went
	g.count(6, bpf.ReasonPolicy, 0, 20)
	g.slot(5, "t2") // the old slot is another's now
	g.count(5, bpf.ReasonPolicy, 0, 7)
	want("t1", 150)
	want("t2", 7)
	g.count(6, bpf.ReasonSpoof, 0, 1)
	g.count(6, bpf.ReasonPolicy, 1, 1000)
	want("t1", 151)
	if err := g.drop(6)(); err != nil { // by somebody who does not tell
		t.Fatal(err)
	}
	g.count(6, bpf.ReasonPolicy, 0, 2)
	want("t1", 153)

	// A slot without a record yet is not blamed on anybody, and not forgotten.
	if err := g.maps["slots"].Put(uint32(9), &bpf.Slot{Flags: bpf.SlotUsed, Identifier: idOf("t3").Bytes()}); err != nil {
		t.Fatal(err)
	}
	g.count(9, bpf.ReasonPolicy, 0, 4)
	want("t3", 0)
	g.slot(9, "t3")
	want("t3", 4)

	g.count(bpf.SlotDefaultDeny, bpf.ReasonPolicy, 0, 8)
	g.count(bpf.CounterNoSlot, bpf.ReasonNoState, 0, 9)
	want("(default-deny)", 8)
	want("(none)", 9)
}

// What was counted before the start is not new.
func TestTotalsBeginWithZero(t *testing.T) {
	g := newGround(t, DetailNode)
	g.slot(5, "t1")
	g.count(5, bpf.ReasonPolicy, 0, 100)
	again := New(Options{Detail: DetailNamespace})
	again.Start(g.verdicts.src)
	g.Metrics = again
	if got := g.dropped("t1"); got != 0 {
		t.Errorf("%v drops", got)
	}
	g.count(5, bpf.ReasonPolicy, 0, 103)
	if got := g.dropped("t1"); got != 3 {
		t.Errorf("%v drops, want 3", got)
	}
}

// However many namespaces come and go, the number of series has a bound.
func TestSeriesAreBounded(t *testing.T) {
	g := newGround(t, DetailNamespace)
	for i := range uint32(maxScopes + 50) {
		slot := bpf.FirstSlot + i
		g.slot(slot, fmt.Sprintf("ns-%d", i))
		g.count(slot, bpf.ReasonPolicy, 0, 1)
	}
	families := g.gather()
	if n := len(families["latch_dropped_packets_total"].GetMetric()); n > 2*maxScopes+2 {
		t.Errorf("%d series", n)
	}
	if got := g.dropped("(other)"); got != 50 {
		t.Errorf("%v drops of others, want 50", got)
	}
	for i := range uint32(maxScopes + 50) {
		if err := g.FreeCounters([]uint32{bpf.FirstSlot + i}, g.drop(bpf.FirstSlot+i)); err != nil {
			t.Fatal(err)
		}
	}
	for s := range g.verdicts.used {
		g.verdicts.used[s] = time.Now().Add(-scopeAge - time.Second)
	}
	if n := len(g.gather()["latch_dropped_packets_total"].GetMetric()); n != 0 {
		t.Errorf("%d series of namespaces that are gone", n)
	}
}

// What becomes of the entries of each table is told by family, table and cause.
func TestEvictionsByCause(t *testing.T) {
	g := newGround(t, DetailNode)
	for i, table := range bpf.Tables() {
		found := enforce.Table{Table: table, Live: 10 + i, Capacity: 100 + i, Pushed: uint64(1000 + i), Ended: map[bpf.End]uint64{}}
		for _, end := range bpf.Ends() {
			found.Ended[end] = uint64(10_000*(1+int(end)) + i)
		}
		g.tables = append(g.tables, found)
	}
	got := map[string]float64{}
	for name, f := range g.gather() {
		if !strings.HasPrefix(name, "latch_flow_") && !strings.HasPrefix(name, "latch_frag") {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			got[strings.TrimPrefix(name, "latch_")+" "+strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	maps.DeleteFunc(got, func(name string, _ float64) bool { return strings.HasPrefix(name, "flow_log") })
	for name, want := range map[string]float64{
		"flow_table_entries ipv4 main": 10, "flow_table_capacity_entries ipv6 spill": 103, "fragment_table_entries main": 14,
		"fragment_table_capacity_entries spill": 105, "flow_evictions_total table-full ipv4 main": 1000,
		"flow_evictions_total table-full ipv6 spill": 1003, "flow_evictions_total expired ipv6 main": 10_001,
		"flow_evictions_total closed ipv4 main": 20_000, "flow_evictions_total policy ipv4 spill": 30_002,
		"flow_evictions_total crowded ipv4 main": 40_000, "flow_evictions_total pod-gone ipv4 main": 50_000,
		"fragment_evictions_total table-full main": 1004, "fragment_evictions_total expired spill": 10_005,
		"fragment_evictions_total pod-gone main": 50_004,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s: got %v (%v), want %v", name, n, ok, want)
		}
	}
	if want := 4*2 + 4*6 + 2*2 + 2*3; len(got) != want {
		t.Errorf("%d series, want %d: %v", len(got), want, got)
	}
}

func TestKindsOfDivergences(t *testing.T) {
	for what, want := range map[string]string{
		"eni1: to_pod was not in force":                        "hook",
		"pod_state of eni1 was missing":                        "binding",
		"rules of slot 5 were changed by another: x":           "rules",
		"slot 5 was not complete, or another's":                "slot",
		"record of the last pod id was behind: 1, 2 is in use": "node",
		"binding of interface 3 as pod 4":                      "orphan-binding",
		"link pin 3_to_pod":                                    "orphan-link",
		"slots of identifier " + string(idOf("t1")):            "orphan-slots",
		"record of attachment c1/eth0 was lost":                "record",
		"pinned objects were gone: x":                          "pins",
		"attachment without interface":                         "gone",
		"something new":                                        "other",
	} {
		if got := kindOf(what); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
}

// The tables as full as they can be.
func BenchmarkScrape(b *testing.B) {
	g := newGround(b, DetailNamespace)
	for i := range uint32(bpf.MaxCounters - 100) {
		slot := bpf.FirstSlot + i/4
		if i%4 == 0 {
			g.slot(slot, fmt.Sprintf("ns-%d", i%100))
		}
		g.count(slot, bpf.Reason(i%4), 0, 1)
	}
	for b.Loop() {
		if _, err := g.Registry().Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
