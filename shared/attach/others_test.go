package attach

import (
	"errors"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// A filter of others goes only when ours is in front on both sides, and then without a gap: what they
// let through meets ours before and after.
func TestEvict(t *testing.T) {
	modes(t, func(t *testing.T, g *ground, m Mode) {
		theirs, ours := newProgram(t, "handle_egress", ok), newProgram(t, "ours", next)
		progs := map[Side]uint32{ToPod: uint32(id(t, ours.Program)), FromPod: uint32(id(t, ours.Program))}
		g.foreignFilter(FromPod, theirs.Program, 1, 1)
		others := g.others(FromPod)
		if len(others) != 1 || others[0].ProgID != uint32(id(t, theirs.Program)) || others[0].Handle != 1 || others[0].Name != "foreign" {
			t.Fatalf("want the filter of others alone, have %v", others)
		}
		evict := func(o Other) error { return g.in(func() error { return Evict(g.ifindex, FromPod, o, progs) }) }

		g.attach(FromPod, ours.Program, m)
		if err := evict(others[0]); !errors.Is(err, ErrConflict) {
			t.Errorf("evict with one side missing: %v", err)
		}
		g.attach(ToPod, ours.Program, m)
		another := others[0]
		another.ProgID++
		if err := evict(another); err != nil || len(g.others(FromPod)) != 1 {
			t.Errorf("evict a program that has been replaced: %v, left %v", err, g.others(FromPod))
		}
		for range 2 {
			if err := evict(others[0]); err != nil {
				t.Error(err)
			}
		}
		if left := g.others(FromPod); len(left) != 0 {
			t.Errorf("left %v", left)
		}
		g.wantEffective(FromPod, ours.Program, m)
		if n := g.send(FromPod, 10, 10); n != 10 || ours.count() != 10 || theirs.count() != 0 {
			t.Errorf("%d of 10 arrived, ours saw %d, theirs %d", n, ours.count(), theirs.count())
		}
		g.detach(FromPod)
		g.detach(ToPod)
	})
}

func TestEvictOnInterfaceThatIsGone(t *testing.T) {
	testenv.RequireRoot(t)
	g := newGround(t)
	err := g.in(func() error { return Evict(1<<30, FromPod, Other{Priority: 1, Handle: 1}, nil) })
	if !errors.Is(err, ErrGone) {
		t.Errorf("want ErrGone, have %v", err)
	}
}

func (g *ground) others(s Side) []Other {
	g.t.Helper()
	var others []Other
	err := g.in(func() (err error) {
		others, err = Others(g.ifindex, s)
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return others
}
