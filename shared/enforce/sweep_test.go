package enforce

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// What no record accounts for goes; what one does stays.
func TestSweep(t *testing.T) {
	g := newGround(t)
	g.e.cfg.AttachMode = attach.ModeTCX
	if attach.HaveTCX() != nil {
		g.e.cfg.AttachMode = attach.ModeClsact
	}
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	sweep := func() (swept []string) {
		t.Helper()
		g.do(func() (err error) {
			swept, err = g.e.Sweep(ctx)
			return err
		})
		return swept
	}
	if swept := sweep(); len(swept) > 0 {
		t.Fatalf("swept %v though everything is recorded", swept)
	}
	g.wantVerdicts("after a sweep with nothing to do", true, false)

	if err := g.e.objects.bind(state.Interface{Ifindex: 70000, PodID: 4711}, 0); err != nil { // a binding that nobody recorded
		t.Fatal(err)
	}
	slot, err := g.e.allocate(ctx, g.e.objects, idB.Bytes()) // a writer that died before it recorded
	if err != nil {
		t.Fatal(err)
	}
	if swept := sweep(); len(swept) != 2 {
		t.Errorf("swept %v, want a binding and a slot", swept)
	}
	if _, bound, err := g.e.objects.podState(70000); bound || err != nil {
		t.Errorf("binding is left: %v %v", bound, err)
	}
	if f := g.e.objects.slots.At(int(slot)).Flags; f != 0 {
		t.Errorf("slot %d is left, flags %#x", slot, f)
	}
	g.wantVerdicts("swept", true, false)

	// The record of the attachment is lost and nobody has seen it: it is closed, not open, and its link goes.
	g.e.seen.atts = nil
	if err := g.e.store.DeleteAttachment("c1", "eth0"); err != nil {
		t.Fatal(err)
	}
	sweep()
	g.wantVerdicts("record lost", false, false)
}

// A record that cannot be read does not make DEL fail for ever, and does not open anything.
func TestCorruptRecord(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	path := filepath.Join(g.cfg.StateDir, "attachments", identity.AttachmentKey("c1", "eth0")+".json")
	if err := os.WriteFile(path, []byte("{\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.do(func() error {
		if _, err := g.e.Sweep(ctx); err == nil {
			t.Error("a sweep that cannot know what is recorded said nothing")
		}
		return nil
	})
	g.wantVerdicts("record cannot be read", true, false)
	g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("record is still there: %v", err)
	}
	g.do(func() error {
		_, err := g.e.Sweep(ctx)
		return err
	})
	g.wantVerdicts("removed and swept", false, false)
	g.forget(idA)
	for slot := bpf.FirstSlot; slot < bpf.MaxSlots; slot++ {
		if f := g.e.objects.slots.At(slot).Flags; f != 0 {
			t.Errorf("slot %d is left, flags %#x", slot, f)
		}
	}
}
