package attach

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/testenv"
)

// While a link is held, the end of its pin is not its end, and the next look pins it again; a Detach ends
// it all the same.
func TestHeldLinkOutlivesItsPin(t *testing.T) {
	requireTCX(t)
	other, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, loss := range []struct {
		name string
		do   func(pin string) error
	}{
		{"deleted", os.Remove},
		{"replaced by a map", func(pin string) error { return pins.PinAtomic(other, pin) }},
	} {
		t.Run(loss.name, func(t *testing.T) {
			g := newGround(t)
			p := newProgram(t, "p", drop)
			g.attach(FromPod, p.Program, ModeTCX)
			links := NewLinks()
			g.hold(links, false)
			g.hold(links, false)
			if err := loss.do(g.pin(FromPod)); err != nil {
				t.Fatal(err)
			}
			if n := g.send(FromPod, 20, 0); n != 0 {
				t.Errorf("%d of 20 packets went through", n)
			}
			g.wantEffective(FromPod, p.Program, ModeTCX)
			g.hold(links, true)
			g.hold(links, false)
			g.attach(FromPod, p.Program, ModeTCX) // by its pin
			g.wantOurs(FromPod, 1)
			if n := links.Len(); n != 1 {
				t.Errorf("%d links are held", n)
			}
			g.detach(FromPod)
			g.wantBare()
			g.hold(links, false)
			if n := links.Len(); n != 0 {
				t.Errorf("%d links are held of an interface that has none", n)
			}
		})
	}
}

// A link that took the place of the one that is held is held instead.
func TestHeldLinkIsTheOneThatIsPinned(t *testing.T) {
	requireTCX(t)
	g := newGround(t)
	p := newProgram(t, "p", drop)
	g.attach(FromPod, p.Program, ModeTCX)
	links := NewLinks()
	g.hold(links, false)
	g.detach(FromPod)
	g.attach(FromPod, p.Program, ModeTCX)
	g.hold(links, false)
	if err := os.Remove(g.pin(FromPod)); err != nil {
		t.Fatal(err)
	}
	g.wantEffective(FromPod, p.Program, ModeTCX)
	links.Release("c1")
	if st := g.query(FromPod, p.Program); st.Attached {
		t.Error("a link without pin, held by nobody, is attached")
	}
}

func TestHeldLinksAreBounded(t *testing.T) {
	requireTCX(t)
	g := newGround(t)
	p := newProgram(t, "p", drop)
	g.attach(FromPod, p.Program, ModeTCX)
	g.attach(ToPod, p.Program, ModeTCX)
	links := NewLinks()
	links.limit = 1
	g.hold(links, false)
	if _, err := links.Hold("c2", g.ifindex, ToPod, g.pin(ToPod)); !errors.Is(err, ErrTooMany) {
		t.Errorf("two links with room for one: %v", err)
	}
	links.Keep(func(owner string) bool { return owner == "c2" })
	if _, err := links.Hold("c2", g.ifindex, ToPod, g.pin(ToPod)); err != nil || links.Len() != 1 {
		t.Errorf("%d links with room for one: %v", links.Len(), err)
	}
	links.Keep(func(string) bool { return false })
	g.wantEffective(FromPod, p.Program, ModeTCX)
	g.detach(FromPod)
	g.detach(ToPod)
}

// hold holds the link from the pod, and asserts whether it had to be pinned again.
func (g *ground) hold(l *Links, want bool) {
	g.t.Helper()
	err := g.in(func() error {
		repinned, err := l.Hold("c1", g.ifindex, FromPod, g.pin(FromPod))
		if err == nil && repinned != want {
			err = fmt.Errorf("pinned again: %v, want %v", repinned, want)
		}
		return err
	})
	if err != nil {
		g.t.Error(err)
	}
}

// What somebody else has pinned in the place of a link is replaced, and removed with the attachment.
func TestPlaceOfAPinIsTaken(t *testing.T) {
	other, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	modes(t, func(t *testing.T, g *ground, m Mode) {
		p := newProgram(t, "p", drop)
		for _, way := range []Mode{m, ModeAuto} {
			g.attach(FromPod, p.Program, m)
			if err := pins.PinAtomic(other, g.pin(FromPod)); err != nil { // ends the link
				t.Fatal(err)
			}
			testenv.Eventually(t, 5*time.Second, func() error { // the kernel takes a moment to end the link
				return g.in(func() error { return Attach(g.ifindex, FromPod, p.Program, way, g.pin(FromPod)) })
			})
			g.wantOurs(FromPod, 1)
			if err := pins.PinAtomic(other, g.pin(FromPod)); err != nil {
				t.Fatal(err)
			}
			if severed, err := Severed(g.pin(FromPod)); err != nil || !severed {
				t.Errorf("severed %v, %v", severed, err)
			}
			g.detach(FromPod)
			testenv.Eventually(t, 5*time.Second, func() error {
				if st := g.query(FromPod, p.Program); st.Attached {
					return fmt.Errorf("still attached: %+v", st)
				}
				return nil
			})
			g.wantBare()
			if left := g.pinned(); len(left) != 0 {
				t.Errorf("pins are left: %v", left)
			}
		}
	})
}
