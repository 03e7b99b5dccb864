package enforce

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// Records that are lost or cannot be read are written again, as long as the kernel knows the attachment.
func TestLostRecordsComeBack(t *testing.T) {
	file := func(g *ground, elem ...string) string {
		return filepath.Join(append([]string{g.cfg.StateDir}, elem...)...)
	}
	attachmentFile := func(g *ground) string {
		return file(g, "attachments", identity.AttachmentKey("c1", "eth0")+".json")
	}
	identifierFile := func(g *ground) string { return file(g, "identifiers", string(idA)+".json") }
	damages := []struct {
		name string
		do   func(*ground) error
	}{
		{"attachment deleted", func(g *ground) error { return os.Remove(attachmentFile(g)) }},
		{"attachment is garbage", func(g *ground) error { return os.WriteFile(attachmentFile(g), []byte("{"), 0o600) }},
		{"identifier deleted", func(g *ground) error { return os.Remove(identifierFile(g)) }},
		{"identifier is garbage", func(g *ground) error { return os.WriteFile(identifierFile(g), []byte("{"), 0o600) }},
		{"members deleted", func(g *ground) error { return os.RemoveAll(file(g, "members")) }},
		{"all deleted", func(g *ground) error {
			for _, dir := range []string{"attachments", "identifiers", "members", "locks"} {
				if err := os.RemoveAll(file(g, dir)); err != nil {
					return err
				}
			}
			return nil
		}},
	}
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	sweep := func() (swept []string) {
		g.do(func() (err error) {
			swept, err = g.e.Sweep(ctx)
			return err
		})
		return swept
	}
	sweep()
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			if err := d.do(g); err != nil {
				t.Fatal(err)
			}
			verify := func() []string {
				said := sweep()
				for _, r := range g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true}).Repaired {
					said = append(said, r.What)
				}
				return said
			}
			if len(verify()) == 0 {
				t.Error("nothing was reported")
			}
			if said := verify(); len(said) > 0 {
				t.Errorf("reported again: %q", said)
			}
			g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
			g.wantVerdicts("after the repair", true, false)
		})
	}
	g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
	if swept := sweep(); len(swept) > 0 {
		t.Errorf("swept after DEL: %q", swept)
	}
	if _, err := g.e.store.ReadAttachment("c1", "eth0"); !os.IsNotExist(err) && err == nil {
		t.Error("the record came back after DEL")
	}
}

// ADD of an adopted pod deletes the record of the adoption and keeps its binding: that record is not lost.
func TestRecordOfAdoptionStaysGone(t *testing.T) {
	g := newGround(t)
	sweep := func() (swept []string) {
		g.do(func() (err error) {
			swept, err = g.e.Sweep(ctx)
			return err
		})
		return swept
	}
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{adopted(g.iface)}})
	sweep() // the watcher has seen it
	added := attachment(g.iface)
	added.PodUID = "u1"
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{added}})
	for range 2 {
		if swept := sweep(); len(swept) > 0 {
			t.Errorf("swept: %q", swept)
		}
	}
	if atts, err := g.e.store.ListAttachments(); err != nil || len(atts) != 1 || atts[0].ContainerID != "c1" {
		t.Errorf("records: %+v, %v", atts, err)
	}
	g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
}

// A pin that names another's object is never worked with: who holds ours pins them again, who does not
// loads others.
func TestForeignPins(t *testing.T) {
	stranger, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "stranger", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	replace := map[string]func(*ground) error{
		"program": func(g *ground) error { return pins.PinAtomic(stranger, g.e.pins.Prog("from_pod")) },
		"program in place of a map": func(g *ground) error {
			return pins.PinAtomic(stranger, g.e.pins.Map("slots"))
		},
		"map of our kind": func(g *ground) error {
			o, err := bpf.Load(g.cfg.Sizes)
			if err != nil {
				return err
			}
			defer o.Close()
			return pins.PinAtomic(o.Maps["pod_state"], g.e.pins.Map("pod_state"))
		},
	}
	for name, do := range replace {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
			if err := do(g); err != nil {
				t.Fatal(err)
			}
			for _, bindOnly := range []bool{false, true} {
				if _, err := openObjects(g.e.pins, bindOnly); !unusable(err) {
					t.Errorf("opened, only to bind: %v: %v", bindOnly, err)
				}
			}
			g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true})
			g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
			g.wantVerdicts("held", true, false)
			if n := g.e.Replaced(); n != 0 {
				t.Errorf("objects were replaced %d times", n)
			}

			// Somebody who comes without ours.
			if err := do(g); err != nil {
				t.Fatal(err)
			}
			if err := g.e.Close(); err != nil {
				t.Fatal(err)
			}
			g.open()
			g.wantVerdicts("not held", true, false)
			g.apply(Request{Identifier: idA, Create: allowPorts(shutPort), Verify: true})
			g.wantVerdicts("after the next policy", false, true)
		})
	}
}

// Who finds under the lock that the attachment has gone meanwhile leaves no lock file behind: nobody comes
// after it who would.
func TestLocksOfGoneAttachmentsAreRemoved(t *testing.T) {
	g := newGround(t)
	gone := attachment(g.iface)
	gone.Identifier = idA
	for name, look := range map[string]func() error{
		"restore a member": func() error { _, err := g.e.addMember(ctx, gone); return err },
		"restore a record": func() error { _, _, err := g.e.restoreOne(ctx, g.e.objects, gone); return err },
	} {
		if err := look(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := filepath.Glob(filepath.Join(g.e.store.LockDir(), string(idA)+"*")); err != nil || len(left) > 0 {
			t.Errorf("%s: %v (%v) is left", name, left, err)
		}
	}
}
