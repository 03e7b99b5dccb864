package attach

import (
	"errors"
	"testing"
)

// An index belongs to whoever has the name, or our link. Another interface may have it since.
func TestOpenKnowsTheInterface(t *testing.T) {
	g := newGround(t)
	open := func(ifindex int, name string, pins ...string) error {
		return g.in(func() error {
			i, err := Open(ifindex, name, pins...)
			if err != nil {
				return err
			}
			return i.Close()
		})
	}
	if err := open(g.ifindex, "host0"); err != nil {
		t.Errorf("by its name: %v", err)
	}
	if err := open(4711, "host0"); !errors.Is(err, ErrGone) {
		t.Errorf("an index that nobody has: %v", err)
	}
	if err := open(g.ifindex, "other0", g.pin(ToPod)); !errors.Is(err, ErrGone) {
		t.Errorf("by another name: %v", err)
	}
	requireTCX(t)
	g.attach(ToPod, newProgram(t, "p", drop).Program, ModeTCX)
	if err := open(g.ifindex, "other0", g.pin(FromPod), g.pin(ToPod)); err != nil {
		t.Errorf("by a link: %v", err)
	}
}
