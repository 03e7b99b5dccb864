package enforce

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// Whoever deletes the pin of a link does not open the pod while the watcher runs, also one that was started
// later; the next look pins the link again. What is held goes with the attachment.
func TestLinkWithoutItsPinStaysInForce(t *testing.T) {
	testenv.RequireKernel(t, testenv.TCXVersion, attach.HaveTCX())
	g := newGround(t)
	g.cfg.HoldLinks = true
	g.open()
	g.e.cfg.AttachMode = attach.ModeTCX
	req := Request{Identifier: idA, Create: allowPorts(openPort), Verify: true}
	bind := req
	bind.Bind = []state.Attachment{attachment(g.iface)}
	g.apply(bind)
	for _, watcher := range []string{"first", "second"} {
		a, err := g.e.Store().ReadAttachment("c1", "eth0")
		if err != nil {
			t.Fatal(err)
		}
		for _, side := range attach.Sides {
			if err := os.Remove(g.e.linkPin(a.Interfaces[0], side)); err != nil {
				t.Fatal(err)
			}
		}
		g.wantVerdicts(watcher+" watcher, pins deleted", true, false)
		said := fmt.Sprint(g.apply(req).Repaired)
		if strings.Count(said, "pinned objects: link") != 2 {
			t.Errorf("%s watcher: repaired %q, want both links", watcher, said)
		}
		if said := g.apply(req).Repaired; len(said) > 0 {
			t.Errorf("%s watcher: repaired again: %v", watcher, said)
		}
		before := g.e
		g.open() // as a restart does
		g.apply(req)
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.e.links.Len(); n != 2 {
		t.Errorf("%d links are held", n)
	}
	g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
	g.do(func() error { _, err := g.e.Sweep(ctx); return err })
	if n := g.e.links.Len(); n != 0 {
		t.Errorf("%d links of an attachment that was removed are held", n)
	}
	g.wantVerdicts("removed", false, false)
}
