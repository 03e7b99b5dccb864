package attach

import (
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// Auto attaches by clsact and keeps an interface that was promoted.
func TestAutoKeepsTheLink(t *testing.T) {
	requireTCX(t)
	g := newGround(t)
	old, young := newProgram(t, "old", next), newProgram(t, "young", next)
	g.attach(ToPod, old.Program, ModeAuto)
	g.wantEffective(ToPod, old.Program, ModeClsact)
	if err := g.in(func() error { return Attach(g.ifindex, ToPod, old.Program, ModeTCX, g.pin(ToPod)) }); err != nil {
		t.Fatal(err)
	}
	g.wantEffective(ToPod, old.Program, ModeTCX)
	g.wantOurs(ToPod, 1)
	g.attach(ToPod, young.Program, ModeAuto)
	g.wantEffective(ToPod, young.Program, ModeTCX)
	g.wantOurs(ToPod, 1)
	g.detach(ToPod)
	g.wantBare()
}

// While the way changes back and forth, programs are replaced, and others push in behind, a flood of
// packets finds no gap.
func TestNoGap(t *testing.T) {
	testenv.RequireRoot(t)
	g := newGround(t)
	ways := []Mode{ModeTCX, ModeClsact}
	if HaveTCX() != nil {
		ways = []Mode{ModeClsact}
	}
	ps := []counter{newProgram(t, "one", drop), newProgram(t, "two", drop)}
	g.attach(FromPod, ps[0].Program, ModeClsact)
	f := g.flood()
	defer f.stop()
	for round := range 10 {
		for _, p := range ps {
			for _, m := range ways {
				seen := ps[0].count() + ps[1].count()
				g.attach(FromPod, p.Program, m)
				g.wantEffective(FromPod, p.Program, m)
				g.wantOurs(FromPod, 1)
				testenv.Eventually(t, waitFlood, func() error { return grew(seen, ps) })
			}
		}
		if n := f.arrived.Load(); n != 0 {
			t.Fatalf("round %d: %d packets slipped through", round, n)
		}
	}
	t.Logf("%d packets sent", f.sent.Load())
	g.detach(FromPod)
	testenv.Eventually(t, waitFlood, func() error { return arrives(f) })
}

// A filter that is put in front and taken away again: while Attach moves past it, what we drop stays
// dropped as long as theirs lets it on.
func TestNoGapOnTheWayToTheFront(t *testing.T) {
	modes(t, func(t *testing.T, g *ground, m Mode) {
		ours, theirs := newProgram(t, "ours", drop), newProgram(t, "theirs", next)
		g.attach(FromPod, ours.Program, m)
		f := g.flood()
		defer f.stop()
		for round := range 5 {
			seen := ours.count()
			if m == ModeTCX {
				l := g.foreignLink(FromPod, theirs.Program)
				g.attach(FromPod, ours.Program, m)
				g.wantEffective(FromPod, ours.Program, m)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			} else {
				g.foreignFilter(FromPod, theirs.Program, 1, uint32(round+1))
				g.attach(FromPod, ours.Program, m)
				g.wantEffective(FromPod, ours.Program, m)
			}
			g.wantOurs(FromPod, 1)
			testenv.Eventually(t, waitFlood, func() error { return grew(seen, []counter{ours}) })
		}
		if n := f.arrived.Load(); n != 0 {
			t.Errorf("%d of %d packets slipped through", n, f.sent.Load())
		}
		g.detach(FromPod)
		testenv.Eventually(t, waitFlood, func() error { return arrives(f) })
	})
}
