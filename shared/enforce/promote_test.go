package enforce

import (
	"sync"
	"testing"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// While an interface is promoted, and demoted by its removal, a forbidden packet never passes.
func TestPromoteUnderFire(t *testing.T) {
	testenv.RequireKernel(t, testenv.TCXVersion, attach.HaveTCX())
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				g.send(shutPort)
			}
		}
	})
	var done bool
	g.do(func() (err error) {
		done, err = g.e.Promote(ctx, "c1", "eth0")
		return err
	})
	if !done {
		t.Error("nothing was promoted")
	}
	if a, err := g.e.Store().ReadAttachment("c1", "eth0"); err != nil || a.Interfaces[0].Mode != string(attach.ModeTCX) {
		t.Errorf("recorded as %q, %v", a.Interfaces[0].Mode, err)
	}
	g.wantVerdicts("promoted", true, false)
	r := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true})
	if len(r.Repaired) > 0 {
		t.Errorf("a promoted interface was taken for a broken one: %v", r.Repaired)
	}
	g.do(func() (err error) {
		done, err = g.e.Promote(ctx, "c1", "eth0")
		return err
	})
	if done {
		t.Error("promoted twice")
	}
	g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
	close(stop)
	wg.Wait()
	if n := g.received[shutPort].Load(); n != 0 {
		t.Errorf("%d forbidden packets passed", n)
	}
	if links, err := g.e.pins.Links(); err != nil || len(links) > 0 {
		t.Errorf("links %v are left, %v", links, err)
	}
}
