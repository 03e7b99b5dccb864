package enforce

import (
	"os"
	"testing"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// binder is a second enforcer on the node, which only binds.
func (g *ground) binder() *Enforcer {
	g.t.Helper()
	cfg := g.cfg
	cfg.BindOnly = true
	e, err := Open(ctx, cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = e.Close() })
	return e
}

// Who only binds puts an interface under rules that are there, and takes it off.
func TestBindOnly(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort)})
	writer := g.e
	g.e = g.binder()
	bind := Request{Identifier: idA, Bind: []state.Attachment{attachment(g.iface)}}
	g.apply(bind)
	g.wantVerdicts("bound", true, false)
	g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })

	bind.Create = allowPorts(shutPort)
	if err := g.node.Do(func() error { _, err := g.tryApply(bind); return err }); err == nil {
		t.Error("it wrote rules")
	}
	g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
	g.wantVerdicts("removed", false, false)
	g.e = writer
	g.do(func() error {
		held, err := g.e.Lock(ctx, idA)
		if err != nil {
			return err
		}
		defer held.ReleaseAndRemove()
		return g.e.Forget(ctx, held, idA)
	})
	g.wantNothingLeft()
}

// A pin that binding does not take says nothing about where an interface is bound: who writes there, and
// who audits, must not work with a foreign or missing one; who only binds, works on.
func TestBindOnlyLooksAtWhatItBinds(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort)})
	others, err := bpf.Load(g.cfg.Sizes)
	if err != nil {
		t.Fatal(err)
	}
	defer others.Close()
	if err := pins.PinAtomic(others.Maps["rules_out4"], g.e.pins.Map("rules_out4")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(g.e.pins.Map("frags")); err != nil {
		t.Fatal(err)
	}
	if _, err := openObjects(g.e.pins, false); !unusable(err) {
		t.Errorf("who works with all opened them: %v", err)
	}
	writer := g.e
	g.e = g.binder()
	g.apply(Request{Identifier: idA, Bind: []state.Attachment{attachment(g.iface)}})
	g.wantVerdicts("bound", true, false)

	// The writer puts both back.
	g.e = writer
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true})
	if _, err := openObjects(g.e.pins, false); err != nil {
		t.Error(err)
	}
	g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
	g.wantVerdicts("put back", true, false)
}
