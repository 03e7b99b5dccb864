package reconcile

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/rules"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// historyKernel is the node of a history: a reconciler that writes into the kernel, and interfaces that
// pods are given.
type historyKernel struct {
	*Reconciler
	h      *history
	node   *testenv.NetNS
	pods   *bpf.Array[bpf.PodState]
	tables *rules.Tables
	free   []state.Interface
}

func newHistoryKernel(t *testing.T, h *history) *historyKernel {
	t.Helper()
	k := &historyKernel{h: h, node: testenv.New(t)}
	for i := range 6 {
		name := fmt.Sprintf("lt%d", i)
		host, _ := testenv.Veth(t, k.node, name, testenv.New(t), "eth0")
		k.free = append(k.free, state.Interface{Ifindex: host.Attrs().Index, Name: name})
	}
	bpffs := testenv.BPFFS(t)
	e, err := enforce.Open(ctx, enforce.Config{
		Bpffs: bpffs, StateDir: testenv.StateDir(t), AttachMode: attach.ModeClsact, LockTimeout: 5 * time.Second,
		Sizes: bpf.Sizes{Flows4: 64, Flows6: 64, Frags: 64},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	k.Reconciler = New(h.w, e, slog.New(slog.DiscardHandler))

	// What is written is read by other eyes than the enforcer's.
	maps := map[string]*ebpf.Map{}
	for _, name := range bpf.MapNames() {
		m, err := pins.LoadMap(pins.New(bpffs).Map(name), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		maps[name] = m
	}
	slots, err := bpf.MapArray[bpf.Slot](maps["slots"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slots.Close() })
	if k.pods, err = bpf.MapArray[bpf.PodState](maps["pod_state"]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.pods.Close() })
	if k.tables, err = rules.NewTables(maps, slots); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *historyKernel) must(what string, do func() error) {
	k.h.t.Helper()
	if err := k.node.Do(do); err != nil {
		k.h.t.Fatalf("%s: %s: %v", k.h.name, what, err)
	}
}

func (k *historyKernel) reconcile(id identity.Identifier) {
	k.h.t.Helper()
	k.must("reconcile", func() error { return k.Reconciler.reconcile(ctx, id) })
}

// toggle does what the plugin does: it starts a pod that is published, or stops one.
func (k *historyKernel) toggle(id identity.Identifier) {
	k.h.t.Helper()
	members, err := k.store.Members(id)
	if err != nil {
		k.h.t.Fatal(err)
	}
	if len(members) > 0 && (len(k.free) == 0 || k.h.IntN(2) == 0) {
		k.must("DEL", func() error { return k.enforcer.Remove(ctx, members[0].ContainerID, members[0].IfName) })
		in := members[0].Interfaces[0]
		k.free = append(k.free, state.Interface{Ifindex: in.Ifindex, Name: in.Name})
		return
	}
	d, ok := k.h.w.Desired(id)
	if !ok || len(d.Pods) == 0 || len(k.free) == 0 {
		return
	}
	pod := d.Pods[k.h.IntN(len(d.Pods))]
	if rec, err := k.store.ReadPod(pod.Namespace, pod.Name); err != nil || rec.Identifier != id {
		return // not published yet: ADD would wait
	}
	a := state.Attachment{ContainerID: fmt.Sprint(k.h.Int64()), IfName: "eth0", PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID,
		Interfaces: k.free[:1:1]}
	k.must("ADD", func() error {
		held, err := k.enforcer.Lock(ctx, id)
		if err != nil {
			return err
		}
		if _, err = k.enforcer.Apply(ctx, held, enforce.Request{Identifier: id, Bind: []state.Attachment{a}}); err != nil {
			return err
		}
		return held.Release()
	})
	k.free = k.free[1:]
}

// restart is another latchd that takes the node over.
func (k *historyKernel) restart() {
	k.h.t.Helper()
	k.Reconciler = New(k.h.w, k.enforcer, slog.New(slog.DiscardHandler))
	if _, err := k.Adopt(); err != nil {
		k.h.t.Fatal(err)
	}
	ids := map[identity.Identifier]bool{}
	if err := k.known(ids); err != nil {
		k.h.t.Fatal(err)
	}
	for id := range ids {
		k.h.queue[id] = true
	}
}

// written reads back what the kernel holds for an identifier, and how its interfaces are bound.
func (k *historyKernel) written(id identity.Identifier) written {
	k.h.t.Helper()
	rec, err := k.store.ReadIdentifier(id)
	if err != nil {
		k.h.t.Fatalf("%s: %v", k.h.name, err)
	}
	var out written
	read := func(ref state.SlotRef) *rules.Content {
		c, err := k.tables.Read(ref.Slot)
		if err != nil {
			k.h.t.Fatalf("%s: %v", k.h.name, err)
		}
		c.Rules.Sources = ref.Sources
		return c
	}
	out.create, out.running = read(rec.Create).Rules, read(rec.Running).Rules
	members, err := k.store.Members(id)
	if err != nil {
		k.h.t.Fatal(err)
	}
	for _, m := range members {
		p := k.pods.At(m.Interfaces[0].Ifindex & 0xffff)
		if !slices.Contains([]uint32{rec.Create.Slot, rec.Running.Slot}, p.Slot) {
			k.h.t.Fatalf("%s: %s is bound to slot %d, its identifier has %d and %d", k.h.name, m.PodName, p.Slot, rec.Create.Slot, rec.Running.Slot)
		}
	}
	return out
}

// The same with a kernel behind it: what the slots hold is what the objects say. The kernel is told of
// changes only, and has seen none but these.
func TestLongHistoryInKernel(t *testing.T) {
	testenv.RequireRoot(t)
	edits := 500
	if testing.Short() {
		edits = 100
	}
	h := newHistory(t, historySeed(t), 1000)
	h.kernel = newHistoryKernel(t, h)
	for n := range edits {
		h.edit()
		h.work(h.IntN(4))
		if n%25 == 24 {
			h.settle()
		}
	}
	t.Logf("%d changes, %d times rules were compared", edits, h.compared)
}
