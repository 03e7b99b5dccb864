package attach

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/testenv"
)

// Facts of the kernel: at one priority the newest filter runs first, and a dump is in the order of
// running. "next" lets the rest run, and so does PIPE, which is not a verdict of filters.
func TestNewestFilterRunsFirst(t *testing.T) {
	testenv.RequireRoot(t)
	for verdict, wantFirst := range map[int32]uint64{next: 10, ok: 0, drop: 0, pipe: 10} {
		g := newGround(t)
		first, second, third := newProgram(t, "first", next), newProgram(t, "second", verdict), newProgram(t, "third", next)
		g.foreignFilter(FromPod, first.Program, 1, 1)
		g.foreignFilter(FromPod, second.Program, 1, 3)
		g.foreignFilter(FromPod, third.Program, 1, 2)
		var found []filter
		err := g.in(func() (err error) {
			found, err = filtersOf(g.ifindex, FromPod.hook())
			return err
		})
		if err != nil || len(found) != 3 {
			t.Fatal(found, err)
		}
		if found[0].prog != id(t, third.Program) || found[1].prog != id(t, second.Program) || found[2].prog != id(t, first.Program) {
			t.Errorf("dump is not newest first: %+v", found)
		}
		arrive := 10
		if verdict == drop {
			arrive = 0
		}
		g.send(FromPod, 10, arrive)
		if third.count() != 10 || second.count() != 10 || first.count() != wantFirst {
			t.Errorf("verdict %d: newest saw %d, middle %d, oldest %d (want %d)", verdict, third.count(), second.count(), first.count(), wantFirst)
		}
	}
}

// Facts of the kernel: programs of tcx run before filters. Only "next" lets the next program of tcx
// run; PIPE ends their list, but not the filters behind it.
func TestTCXRunsBeforeFilters(t *testing.T) {
	requireTCX(t)
	tests := []struct {
		verdict                int32
		wantSecond, wantFilter uint64
	}{
		{next, 10, 10},
		{ok, 0, 0},
		{drop, 0, 0},
		{pipe, 0, 10},
	}
	for _, tt := range tests {
		g := newGround(t)
		filter, second, first := newProgram(t, "filter", next), newProgram(t, "second", next), newProgram(t, "first", tt.verdict)
		g.foreignFilter(FromPod, filter.Program, 1, 1)
		g.foreignLink(FromPod, second.Program)
		g.foreignLink(FromPod, first.Program)
		arrive := 10
		if tt.verdict == drop {
			arrive = 0
		}
		g.send(FromPod, 10, arrive)
		if first.count() != 10 || second.count() != tt.wantSecond || filter.count() != tt.wantFilter {
			t.Errorf("verdict %d: first saw %d, second %d (want %d), filter %d (want %d)",
				tt.verdict, first.count(), second.count(), tt.wantSecond, filter.count(), tt.wantFilter)
		}
	}
}

// The agent in use today has a filter at priority 1 that accepts and stops. We get in front of it, and
// it goes on running behind us.
func TestFilterOfOldAgent(t *testing.T) {
	modes(t, func(t *testing.T, g *ground, m Mode) {
		theirs, ours := newProgram(t, "handle_egress", ok), newProgram(t, "ours", next)
		g.foreignFilter(FromPod, theirs.Program, 1, 1)
		g.attach(FromPod, ours.Program, m)
		g.wantEffective(FromPod, ours.Program, m)
		if n := g.send(FromPod, 10, 10); n != 10 || ours.count() != 10 || theirs.count() != 10 {
			t.Errorf("%d of 10 arrived, ours saw %d, theirs %d", n, ours.count(), theirs.count())
		}
		g.detach(FromPod)
		if n := g.send(FromPod, 10, 10); n != 10 || ours.count() != 10 || theirs.count() != 20 {
			t.Errorf("after Detach: %d of 10 arrived, ours saw %d, theirs %d", n, ours.count(), theirs.count())
		}
	})
}

// What is added later gets in front of us. Query says so, and Attach gets in front again.
func TestComesBackToTheFront(t *testing.T) {
	modes(t, func(t *testing.T, g *ground, m Mode) {
		theirs, ours := newProgram(t, "theirs", ok), newProgram(t, "ours", drop)
		for round := range 3 {
			g.attach(FromPod, ours.Program, m)
			g.wantEffective(FromPod, ours.Program, m)
			if n := g.send(FromPod, 10, 0); n != 0 {
				t.Errorf("%d of 10 went past us", n)
			}
			if m == ModeTCX {
				l := g.foreignLink(FromPod, theirs.Program)
				defer l.Close()
			} else {
				g.foreignFilter(FromPod, theirs.Program, 1, uint32(round+1))
			}
			if n := g.send(FromPod, 10, 10); n != 10 {
				t.Errorf("only %d of 10 went past us: this test tests nothing", n)
			}
			st := g.query(FromPod, ours.Program)
			if !st.Attached || st.Effective || len(st.Ahead) != 1 || !(strings.Contains(st.Ahead[0], "theirs") || strings.Contains(st.Ahead[0], "foreign")) {
				t.Errorf("status %+v does not name what is in front", st)
			}
			if m == ModeTCX && round == 0 { // a program is on a hook once: the next rounds need none
				break
			}
		}
		g.attach(FromPod, ours.Program, m)
		g.wantEffective(FromPod, ours.Program, m)
		if n := g.send(FromPod, 10, 0); n != 0 {
			t.Errorf("%d of 10 went past us", n)
		}
		g.wantOurs(FromPod, 1)
	})
}

// wantOurs requires so many of our programs on a side, counting both modes.
func (g *ground) wantOurs(s Side, want int) {
	g.t.Helper()
	var found []filter
	err := g.in(func() (err error) {
		found, err = filtersOf(g.ifindex, s.hook())
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	have := 0
	for _, f := range found {
		if f.ours {
			have++
		}
	}
	for _, name := range g.pinned() {
		if strings.HasSuffix(name, s.String()) {
			have++
		}
	}
	if have != want {
		g.t.Errorf("%s: %d programs of ours, want %d: %+v, %v", s, have, want, found, g.pinned())
	}
}

// Behind a program of tcx a filter is worth nothing: auto takes tcx, clsact refuses.
func TestForeignTCXAgainstClsact(t *testing.T) {
	requireTCX(t)
	g := newGround(t)
	theirs, ours := newProgram(t, "theirs", ok), newProgram(t, "ours", drop)
	g.foreignLink(FromPod, theirs.Program)
	err := g.in(func() error { return Attach(g.ifindex, FromPod, ours.Program, ModeClsact, g.pin(FromPod)) })
	if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "theirs") {
		t.Errorf("clsact: %v", err)
	}
	g.attach(FromPod, ours.Program, ModeAuto)
	g.wantEffective(FromPod, ours.Program, ModeTCX)
	if n := g.send(FromPod, 10, 0); n != 0 || ours.count() != 10 {
		t.Errorf("%d of 10 arrived, ours saw %d", n, ours.count())
	}
	g.detach(FromPod)
}

// acceptAll is a filter of a kind that is not bpf: it takes every packet and ends the chain.
func acceptAll(ifindex int, parent uint32) netlink.Filter {
	return &netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: ifindex, Parent: parent, Priority: 1, Protocol: unix.ETH_P_ALL},
		ClassId:     netlink.MakeHandle(1, 1),
	}
}

// autoTakesTCX attaches where clsact cannot. Without tcx that is refused as well, never half done.
func (g *ground) autoTakesTCX(s Side, p counter) bool {
	g.t.Helper()
	if HaveTCX() == nil {
		g.attach(s, p.Program, ModeAuto)
		return true
	}
	err := g.in(func() error { return Attach(g.ifindex, s, p.Program, ModeAuto, g.pin(s)) })
	if !errors.Is(err, ErrConflict) {
		g.t.Errorf("%s: auto without tcx: %v", s, err)
	}
	return false
}

// The bandwidth plugin puts a qdisc of kind ingress with a redirecting filter in the place of clsact.
// clsact refuses; auto takes tcx, which runs before it.
func TestIngressQdiscInTheWay(t *testing.T) {
	testenv.RequireRoot(t)
	g := newGround(t)
	err := g.in(func() error {
		q := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: g.ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}}
		if err := netlink.QdiscAdd(q); err != nil {
			return err
		}
		return netlink.FilterAdd(acceptAll(g.ifindex, q.Handle))
	})
	if err != nil {
		t.Fatal(err)
	}
	p := newProgram(t, "p", drop)
	for _, s := range Sides {
		err := g.in(func() error { return Attach(g.ifindex, s, p.Program, ModeClsact, g.pin(s)) })
		if !errors.Is(err, ErrConflict) {
			t.Errorf("%s: %v", s, err)
		}
		if st := g.query(s, p.Program); st.Attached {
			t.Errorf("%s: %+v after a refusal", s, st)
		}
		if !g.autoTakesTCX(s, p) {
			continue
		}
		g.wantEffective(s, p.Program, ModeTCX)
		if n := g.send(s, 10, 0); n != 0 {
			t.Errorf("%s: %d of 10 arrived", s, n)
		}
		g.detach(s)
		if n := g.send(s, 10, 10); n != 10 {
			t.Errorf("%s: %d of 10 arrived after Detach", s, n)
		}
	}
	kind := ""
	err = g.in(func() (err error) {
		kind, err = qdiscKind(g.ifindex)
		return err
	})
	if kind != "ingress" || err != nil {
		t.Errorf("their qdisc: %q, %v", kind, err)
	}
}

// Filters of another kind at priority 1 leave no place for ours: the same.
func TestOtherKindAtOurPriority(t *testing.T) {
	testenv.RequireRoot(t)
	g := newGround(t)
	err := g.in(func() error {
		if err := netlink.QdiscAdd(clsactOf(g.ifindex)); err != nil {
			return err
		}
		return netlink.FilterAdd(acceptAll(g.ifindex, FromPod.hook().parent))
	})
	if err != nil {
		t.Fatal(err)
	}
	p := newProgram(t, "p", drop)
	err = g.in(func() error { return Attach(g.ifindex, FromPod, p.Program, ModeClsact, g.pin(FromPod)) })
	if !errors.Is(err, ErrConflict) {
		t.Errorf("clsact: %v", err)
	}
	if g.autoTakesTCX(FromPod, p) {
		g.wantEffective(FromPod, p.Program, ModeTCX)
		if n := g.send(FromPod, 10, 0); n != 0 {
			t.Errorf("%d of 10 arrived", n)
		}
		g.detach(FromPod)
	}
	list := []string(nil)
	err = g.in(func() (err error) {
		list, err = Occupied(g.ifindex, FromPod)
		return err
	})
	if err != nil || len(list) != 1 || !strings.Contains(list[0], "u32") {
		t.Errorf("their filter: %v, %v", list, err)
	}
}
