package rules

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/testenv"
)

func newTables(t *testing.T) *Tables {
	t.Helper()
	testenv.RequireRoot(t)
	objs, err := bpf.Load(bpf.Sizes{Flows4: 1024, Flows6: 1024, Frags: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = objs.Close() })
	slots, err := bpf.MapArray[bpf.Slot](objs.Maps["slots"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slots.Close() })
	tables, err := NewTables(objs.Maps, slots)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// sameRules compares what the kernel knows: everything but Sources.
func sameRules(t *testing.T, want, got *policy.Rules) {
	t.Helper()
	for _, d := range policy.Directions {
		if want.OnMiss[d] != got.OnMiss[d] {
			t.Errorf("%v on miss: want %v, got %v", d, want.OnMiss[d], got.OnMiss[d])
		}
		if len(want.Entries[d]) == 0 && len(got.Entries[d]) == 0 {
			continue
		}
		if diff := cmp.Diff(want.Entries[d], got.Entries[d], cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Fatalf("%v entries (-want +got):\n%s", d, diff)
		}
	}
}

func TestFillAndReadBack(t *testing.T) {
	tables := newTables(t)
	r := rand.New(rand.NewPCG(*seed, 2))
	for round := range 60 {
		want := randomRules(r)
		if round%5 == 0 {
			want.Entries[policy.Egress] = append([]policy.Entry{{Prefix: netip.MustParsePrefix("1.0.0.0/8"), Ports: manyPorts(40 * (round + 1))}}, want.Entries[policy.Egress]...)
			slices.SortFunc(want.Entries[policy.Egress], compareEntries)
		}
		if _, err := tables.Fill(7, want); err != nil {
			t.Fatal(err)
		}
		got, err := tables.Read(7)
		if err != nil {
			t.Fatal(err)
		}
		sameRules(t, want, got.Rules)
		nothingElse(t, tables, 7, got)
		if round%2 == 0 { // else what is there stays, as of a writer that was killed
			if err := tables.Reset(7); err != nil {
				t.Fatal(err)
			}
			nothingElse(t, tables, 7, &Content{Rules: &policy.Rules{}})
		}
	}
}

// nothingElse requires that the maps of a slot hold what is to be found in them, and nothing that a later update
// would bring to light.
func nothingElse(t *testing.T, tables *Tables, slot uint32, c *Content) {
	t.Helper()
	want := c.sizes()
	for _, d := range policy.Directions {
		for _, f := range families {
			for _, st := range []store{inHash, inTrie} {
				if n := count(t, tables.outer[d][f][st], slot); n != want[d][f][st] {
					t.Errorf("%v %v %v: %d elements in the map, want %d", d, f, st, n, want[d][f][st])
				}
			}
		}
	}
}

// count counts the elements of an inner map; none is as good as an empty one.
func count(t *testing.T, outer *ebpf.Map, slot uint32) (n int) {
	t.Helper()
	m, err := inner(outer, slot)
	if err != nil {
		t.Fatal(err)
	}
	if m == nil {
		return 0
	}
	defer m.Close()
	key, err := m.NextKeyBytes(nil)
	for ; key != nil && err == nil; key, err = m.NextKeyBytes(key) {
		n++
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A slot that is given back keeps its small maps, and rules of about the same size get them: nobody waits for
// readers to put others in their place.
func TestSmallMapsAreUsedAgain(t *testing.T) {
	tables := newTables(t)
	ports := func(n, sets int) *policy.Rules {
		r := manyPeers(n)
		for i := range sets {
			r.Entries[policy.Ingress][i].Ports = manyPorts(20 + i)
		}
		return r
	}
	var last []uint32
	for _, step := range []struct {
		what  string
		rules *policy.Rules
		same  bool
	}{
		{"first", ports(20, 2), false},
		{"as many", ports(20, 1), true},
		{"some more", ports(28, 2), true},
		{"many more, and port sets that do not fit", ports(200, 30), false},
		{"fewer", ports(150, 20), true},
		{"far fewer", ports(5, 1), false},
		{"too many to be kept", ports(2000, 1), false},
		{"as many of them", ports(2000, 1), false},
	} {
		if _, err := tables.Fill(3, step.rules); err != nil {
			t.Fatal(err)
		}
		got, err := tables.Read(3)
		if err != nil {
			t.Fatal(err)
		}
		sameRules(t, step.rules, got.Rules)
		ids := []uint32{mapID(t, tables.outer[policy.Ingress][v4][inHash], 3), mapID(t, tables.portsets, 3)}
		if same := last != nil && ids[0] == last[0] && ids[1] == last[1]; same != step.same {
			t.Errorf("%s: maps %v, before %v", step.what, ids, last)
		}
		last = ids
		if err := tables.Reset(3); err != nil {
			t.Fatal(err)
		}
		if got, err = tables.Read(3); err != nil || len(got.Rules.Entries[policy.Ingress]) > 0 {
			t.Errorf("%s: a slot that was reset holds rules (%v)", step.what, err)
		}
	}
}

func mapID(t *testing.T, outer *ebpf.Map, slot uint32) (id uint32) {
	t.Helper()
	if err := outer.Lookup(slot, &id); err != nil {
		t.Fatal(err)
	}
	return id
}

// Rules are written by batches: none is lost at their ends, nor the port sets that they need.
func TestFillByBatches(t *testing.T) {
	tables := newTables(t)
	for _, n := range []int{batch - 1, batch, batch + 1, 2*batch + 1} {
		want := manyPeers(n)
		for i := 0; i < n; i += 1000 {
			want.Entries[policy.Ingress][i].Ports = manyPorts(10 + i/1000)
		}
		if _, err := tables.Fill(6, want); err != nil {
			t.Fatal(err)
		}
		got, err := tables.Read(6)
		if err != nil {
			t.Fatal(err)
		}
		sameRules(t, want, got.Rules)
	}
}

// manyPorts alternates allow and deny, so that nothing merges.
func manyPorts(n int) []policy.Breakpoint {
	ports := make([]policy.Breakpoint, n)
	for i := range ports {
		ports[i] = policy.Breakpoint{Start: uint32(i), Result: policy.Result{Verdict: policy.Verdict(i % 2), Rule: 300}}
	}
	return ports
}

func TestUpdateEndsWhereFillWould(t *testing.T) {
	tables := newTables(t)
	r := rand.New(rand.NewPCG(*seed, 3))
	now, updates := randomRules(r), 0
	content, err := tables.Fill(3, now)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 150 {
		next := edit(r, now)
		if round%3 == 0 {
			content, err = tables.Read(3) // as after a restart
			if err != nil {
				t.Fatal(err)
			}
		}
		u, err := tables.PlanUpdate(3, content, next)
		if errors.Is(err, ErrRebuild) {
			if err := tables.Reset(3); err != nil {
				t.Fatal(err)
			}
			if content, err = tables.Fill(3, next); err != nil {
				t.Fatal(err)
			}
			now = next
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if content, err = u.Run(); err != nil {
			t.Fatal(err)
		}
		if err := u.Close(); err != nil {
			t.Fatal(err)
		}
		updates++
		got, err := tables.Read(3)
		if err != nil {
			t.Fatal(err)
		}
		sameRules(t, next, got.Rules)
		now = next
	}
	if updates < 30 {
		t.Fatalf("only %d updates were made in place", updates)
	}
}

// A write that fails in the middle is taken back: the old rules are in force, whole.
func TestFailedUpdateIsTakenBack(t *testing.T) {
	tables := newTables(t)
	old := manyPeers(40)
	content, err := tables.Fill(5, old)
	if err != nil {
		t.Fatal(err)
	}
	next := &policy.Rules{OnMiss: old.OnMiss}
	next.Entries[policy.Ingress] = slices.Clone(old.Entries[policy.Ingress][:30])
	for i := range 8 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{12, 0, 0, byte(i)}), 32)
		next.Entries[policy.Ingress] = append(next.Entries[policy.Ingress], policy.Entry{Prefix: p, Ports: manyPorts(5 + i)})
	}
	for fail := range 12 {
		u, err := tables.PlanUpdate(5, content, next)
		if err != nil {
			t.Fatal(err)
		}
		u.failAt = fail + 1
		if _, err := u.Run(); !errors.Is(err, errInjected) {
			t.Fatalf("write %d: got error %v, want the injected one", fail+1, err)
		}
		_ = u.Close()
		got, err := tables.Read(5)
		if err != nil {
			t.Fatal(err)
		}
		sameRules(t, old, got.Rules)
		content = got
	}
}

func TestUpdateThatDoesNotFitNeedsAnotherSlot(t *testing.T) {
	tables := newTables(t)
	content, err := tables.Fill(9, manyPeers(100))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tables.PlanUpdate(9, content, manyPeers(300)); !errors.Is(err, ErrRebuild) {
		t.Fatalf("got %v, want ErrRebuild", err)
	}
	got, err := tables.Read(9)
	if err != nil {
		t.Fatal(err)
	}
	sameRules(t, manyPeers(100), got.Rules)
}

func TestClearLeavesNothing(t *testing.T) {
	tables := newTables(t)
	if _, err := tables.Fill(4, randomRules(rand.New(rand.NewPCG(*seed, 4)))); err != nil {
		t.Fatal(err)
	}
	if err := tables.Clear(4); err != nil {
		t.Fatal(err)
	}
	for _, d := range policy.Directions {
		for _, f := range families {
			for _, st := range []store{inHash, inTrie} {
				if m, err := inner(tables.outer[d][f][st], 4); m != nil || err != nil {
					t.Errorf("inner map of %v %v %v is still there: %v", d, f, st, err)
				}
			}
		}
	}
}
