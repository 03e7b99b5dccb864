package attach

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/testenv"
)

// The direction trap: a program on one side stops the packets of that side and of no other.
func TestEachSideAlone(t *testing.T) {
	modes(t, func(t *testing.T, g *ground, m Mode) {
		for _, s := range Sides {
			other := Sides[1-s]
			p := newProgram(t, s.String(), drop)
			g.attach(s, p.Program, m)
			g.wantEffective(s, p.Program, m)
			if got := g.send(s, 20, 0); got != 0 || p.count() != 20 {
				t.Errorf("%s: %d of 20 went through a program that drops, it saw %d", s, got, p.count())
			}
			if got := g.send(other, 20, 20); got != 20 || p.count() != 20 {
				t.Errorf("%s: %d of 20 packets of the other side went through, the program saw %d more", s, got, p.count()-20)
			}
			if st := g.query(other, p.Program); st.Attached {
				t.Errorf("%s is reported on the other side: %+v", s, st)
			}
			g.detach(s)
			if got := g.send(s, 20, 20); got != 20 {
				t.Errorf("%s: %d of 20 went through after Detach", s, got)
			}
		}
		g.wantBare()
	})
}

// Attach, attach, replace, detach, detach, attach: every step can be repeated.
func TestLife(t *testing.T) {
	modes(t, func(t *testing.T, g *ground, m Mode) {
		old, young := newProgram(t, "old", next), newProgram(t, "young", drop)
		g.detach(ToPod)
		g.wantBare()
		for range 2 {
			for _, s := range Sides {
				for range 2 {
					g.attach(s, old.Program, m)
					g.wantEffective(s, old.Program, m)
				}
			}
			if n := g.send(FromPod, 5, 5); n != 5 || old.count() == 0 {
				t.Errorf("%d of 5 packets, program saw %d", n, old.count())
			}
			for _, s := range Sides {
				g.attach(s, young.Program, m)
				g.wantEffective(s, young.Program, m)
				if st := g.query(s, old.Program); st.Attached {
					t.Errorf("replaced program is still attached: %+v", st)
				}
			}
			if n := g.send(FromPod, 5, 0); n != 0 {
				t.Errorf("%d of 5 packets went through the second program", n)
			}
			wantPins := []string(nil)
			if m == ModeTCX {
				wantPins = []string{"1_from_pod", "1_to_pod"}
			}
			if diff := cmp.Diff(wantPins, g.pinned()); diff != "" {
				t.Error(diff)
			}
			for _, s := range Sides {
				g.detach(s)
				g.detach(s)
			}
			g.wantBare()
		}
	})
}

// Taking off one side leaves the other in force.
func TestDetachOneSide(t *testing.T) {
	modes(t, func(t *testing.T, g *ground, m Mode) {
		p := newProgram(t, "p", drop)
		g.attach(ToPod, p.Program, m)
		g.attach(FromPod, p.Program, m)
		g.detach(ToPod)
		g.wantEffective(FromPod, p.Program, m)
		if n := g.send(FromPod, 5, 0); n != 0 {
			t.Errorf("%d of 5 packets went through", n)
		}
		g.detach(FromPod)
		g.wantBare()
	})
}

func TestDeviceGone(t *testing.T) {
	modes(t, func(t *testing.T, g *ground, m Mode) {
		p := newProgram(t, "p", next)
		g.attach(ToPod, p.Program, m)
		g.pod.Remove(t)
		testenv.Eventually(t, 5*time.Second, func() error {
			if _, err := g.node.Netlink.LinkByIndex(g.ifindex); err == nil {
				return errors.New("host veth is still there")
			}
			return nil
		})
		if m == ModeTCX && len(g.pinned()) != 1 {
			t.Error("the pin of a severed link is gone: this test tests nothing")
		}
		err := g.in(func() error { _, err := Query(g.ifindex, ToPod, uint32(id(t, p.Program))); return err })
		if !errors.Is(err, ErrGone) {
			t.Errorf("query: %v", err)
		}
		for _, way := range []Mode{ModeAuto, ModeClsact, ModeTCX} {
			if way == ModeTCX && HaveTCX() != nil {
				continue
			}
			err = g.in(func() error { return Attach(g.ifindex, ToPod, p.Program, way, g.pin(ToPod)) })
			if !errors.Is(err, ErrGone) {
				t.Errorf("attach by %s: %v", way, err)
			}
		}
		for range 2 {
			g.detach(ToPod)
		}
		if left := g.pinned(); len(left) != 0 {
			t.Errorf("pins are left: %v", left)
		}
	})
}

// A link lives on without any process that holds it, and a process that does cannot keep it from
// being detached.
func TestLinkIsHeldByItsPinAlone(t *testing.T) {
	requireTCX(t)
	g := newGround(t)
	p := newProgram(t, "p", drop)
	g.attach(FromPod, p.Program, ModeTCX)
	if n := g.send(FromPod, 5, 0); n != 0 {
		t.Errorf("%d of 5 packets went through", n)
	}
	var l *attached
	err := g.in(func() (err error) {
		l, err = openLink(g.pin(FromPod), g.ifindex, FromPod.hook())
		return err
	})
	if err != nil || l == nil {
		t.Fatal(l, err)
	}
	defer l.Close()
	g.detach(FromPod)
	g.wantBare()
}

// A link whose pin was lost is found again by its program.
func TestLostPin(t *testing.T) {
	requireTCX(t)
	g := newGround(t)
	p := newProgram(t, "p", drop)
	lost := g.pins.Link(99, ToPod.String())
	if err := g.in(func() error { return Attach(g.ifindex, ToPod, p.Program, ModeTCX, lost) }); err != nil {
		t.Fatal(err)
	}
	g.attach(ToPod, p.Program, ModeTCX)
	g.wantEffective(ToPod, p.Program, ModeTCX)
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	g.wantEffective(ToPod, p.Program, ModeTCX)
	g.detach(ToPod)
	g.wantBare()
}

// The pin of one interface does not lead to the link of another.
func TestPinOfAnotherInterface(t *testing.T) {
	requireTCX(t)
	g := newGround(t)
	p := newProgram(t, "p", drop)
	g.attach(FromPod, p.Program, ModeTCX)
	otherEnd, _ := testenv.Veth(t, g.node, "host1", g.pod, "eth1")
	other := otherEnd.Attrs().Index
	for _, m := range []Mode{ModeAuto, ModeClsact, ModeTCX} {
		if err := g.in(func() error { return Attach(other, FromPod, p.Program, m, g.pin(FromPod)) }); err == nil {
			t.Errorf("attached by %s with the pin of another interface", m)
		}
	}
	if err := g.in(func() error { return Detach(other, FromPod, g.pin(FromPod)) }); err == nil {
		t.Error("detached with the pin of another interface")
	}
	g.wantEffective(FromPod, p.Program, ModeTCX)
	g.detach(FromPod)
}

func TestParseMode(t *testing.T) {
	for in, want := range map[string]Mode{"": ModeAuto, "auto": ModeAuto, "clsact": ModeClsact, "tcx": ModeTCX} {
		if got, err := ParseMode(in); got != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"TCX", "xdp", "tcx "} {
		if _, err := ParseMode(in); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
}

// To attach again in one conversation changes nothing, and another program takes the place.
func TestAttachAgainInOneConversation(t *testing.T) {
	modes(t, func(t *testing.T, g *ground, m Mode) {
		p, q := newProgram(t, "p", ok), newProgram(t, "q", ok)
		err := g.in(func() error {
			i, err := open(g.ifindex)
			if err != nil {
				return err
			}
			defer i.Close()
			for _, prog := range []counter{p, p, q} {
				for _, s := range Sides {
					if err := i.Attach(s, prog.Program, m, g.pin(s)); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range Sides {
			g.wantEffective(s, q.Program, m)
		}
	})
}
