package enforce

import (
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/state"
)

// All pins vanish, and somebody else loads and pins other objects before this process has noticed: it
// works with those from then on, tells them what it knows of the node, and says so.
func TestObjectsReplaced(t *testing.T) {
	g := newGround(t)
	grace := bpf.DefaultTimeouts()
	grace.Grace = 7 * time.Second
	if err := g.e.SetNode(ctx, NodeConfig{Addrs: []netip.Addr{netip.MustParseAddr("198.18.9.9")}, Timeouts: grace}); err != nil {
		t.Fatal(err)
	}
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	old := g.e.objects
	if err := os.RemoveAll(filepath.Join(g.cfg.Bpffs, "latch")); err != nil {
		t.Fatal(err)
	}
	other, err := Open(ctx, g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	// Whoever had seen the pins missing meets the others' under the lock.
	if changed, err := g.e.repin(ctx, old); err != nil || !changed {
		t.Errorf("repin over others' pins: changed %v, %v", changed, err)
	}
	if got := g.e.Replaced(); got != 0 {
		t.Errorf("replaced %d times before anything was done", got)
	}
	g.apply(Request{Identifier: idA, Create: allowPorts(shutPort)})
	if got := g.e.Replaced(); got != 1 {
		t.Errorf("replaced %d times, want 1", got)
	}
	if missing, changed := g.e.objects.compare(g.e.pins); len(missing) > 0 || changed {
		t.Errorf("open objects are not the pinned ones: missing %v, changed %v", missing, changed)
	}
	if got, want := atomic.LoadUint32(&g.e.objects.node.At(0).Timeouts[bpf.TimeoutGrace]), bpf.Stamp(grace.Grace); got != want {
		t.Errorf("grace of the new objects is %d, want %d", got, want)
	}
	if next, mine := g.e.objects.nextPod(), g.interfaceOf("c1").PodID; next <= mine {
		t.Errorf("the next pod gets id %d, an attachment has %d", next, mine)
	}
	g.apply(Request{Identifier: idA, Create: allowPorts(shutPort), Verify: true})
	g.wantVerdicts("verified", false, true)
	g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
	_ = old.close()
}

// interfaceOf is the recorded interface of a container.
func (g *ground) interfaceOf(container string) state.Interface {
	g.t.Helper()
	a, err := g.e.store.ReadAttachment(container, "eth0")
	if err != nil {
		g.t.Fatal(err)
	}
	return a.Interfaces[0]
}

// What a run that began on the old objects remembers says nothing about the slots of new ones.
func TestContentIsOfOneGenerationOfObjects(t *testing.T) {
	g := newGround(t)
	slot := g.apply(Request{Identifier: idA, Create: allowPorts(openPort)}).Create.Slot
	old := g.e.objects
	content, err := g.e.contentOf(old, slot)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.e.reopen(ctx); err != nil {
		t.Fatal(err)
	}
	defer old.close()
	g.e.remember(old, slot, old.slotHash(slot), content) // its last step comes after the change
	if got, err := g.e.contentOf(g.e.objects, slot); err != nil || got == content {
		t.Errorf("content of other objects is believed, error %v", err)
	}
}
