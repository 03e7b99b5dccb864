package regress

import (
	"context"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/testenv"
)

// Interfaces move from clsact to tcx when they have lived for a while. Live traffic must not notice: no
// packet is lost and none let through, on the way into the pod neither, where the kernel drops what it
// has while a qdisc comes or goes.
func TestPromotionUnderTraffic(t *testing.T) {
	testenv.RequireKernel(t, testenv.TCXVersion, attach.HaveTCX())
	r := newRunning(t, options{})
	err := r.Node.Do(func() error {
		e, err := enforce.Open(context.Background(), enforce.Config{Bpffs: r.node.Bpffs, StateDir: r.node.StateDir,
			AttachMode: attach.ModeAuto, LockTimeout: 5 * time.Second})
		if err != nil {
			return err
		}
		defer e.Close()
		for _, p := range []*pod{r.a, r.b} {
			done, err := e.Promote(context.Background(), p.container, p.IfName)
			if err != nil {
				return err
			}
			if !done {
				t.Errorf("%s was not promoted", p.Spec.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*pod{r.a, r.b} {
		if mode := p.record().Interfaces[0].Mode; mode != string(attach.ModeTCX) {
			t.Errorf("%s is attached by %s", p.Spec.Name, mode)
		}
	}
	time.Sleep(200 * time.Millisecond)
	r.edited("promoted")
	r.unharmed("promoted")
}
