package enforce

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// slowReaders has every wait for readers last until it is told to end, and counts them.
func (g *ground) slowReaders() (waits chan struct{}, end func()) {
	waits, ended := make(chan struct{}, 1000), make(chan struct{})
	g.e.grace.wait = func() {
		waits <- struct{}{}
		<-ended
	}
	end = sync.OnceFunc(func() { close(ended) })
	g.t.Cleanup(end)
	return waits, end
}

// owned lists the slots that have an owner.
func (g *ground) owned() (slots []uint32) {
	for slot := uint32(bpf.FirstSlot); slot < bpf.MaxSlots; slot++ {
		if g.slotNow(slot).Identifier != [16]byte{} {
			slots = append(slots, slot)
		}
	}
	return slots
}

// A change of rules is in force, and the lock is let go, before the slot that the pods have left is empty. It is
// nobody else's until then; who needs a slot, or gives the identifier up, waits for it.
func TestSlotsAreEmptiedLater(t *testing.T) {
	g := newGround(t)
	g.e.cfg.FreeLater = true
	first := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	_, end := g.slowReaders()
	next := g.apply(Request{Identifier: idA, Create: allowPorts(shutPort)})
	if next.Create.Slot == first.Create.Slot {
		t.Fatal("the rules were changed in place")
	}
	g.wantVerdicts("before the old slot is empty", false, true)
	if got := g.owned(); len(got) != 2 {
		t.Errorf("slots with an owner: %d, want the new one and the old one", got)
	}
	giveBack := g.takeSlots()
	var wg sync.WaitGroup
	wg.Go(func() { // into the slot that is being emptied: there is no other
		if r := g.apply(Request{Identifier: idA, Create: allowPorts(openPort)}); r.Create.Slot != first.Create.Slot {
			t.Errorf("slot %d, want %d, the only one that comes free", r.Create.Slot, first.Create.Slot)
		}
	})
	time.Sleep(50 * time.Millisecond)
	if s := g.slotNow(first.Create.Slot); s.Flags != bpf.SlotUsed|bpf.SlotComplete {
		t.Errorf("flags %#x of a slot that packets may be at", s.Flags)
	}
	end()
	wg.Wait()
	g.wantVerdicts("in the slot that came free", true, false)
	giveBack()
	g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
	g.forget(idA)
	g.wantNothingLeft()
}

// Slots that come while others are being emptied are emptied together, however many they are.
func TestSlotsAreEmptiedTogether(t *testing.T) {
	g := newGround(t)
	g.e.cfg.FreeLater = true
	var ids []identity.Identifier
	for i := range 50 {
		ids = append(ids, identity.Of("shop", map[string]string{"n": string(rune('a' + i))}))
	}
	all := func(ports ...uint16) {
		t.Helper()
		for _, id := range ids {
			held, err := g.e.Lock(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = g.e.Apply(ctx, held, Request{Identifier: id, Create: allowPorts(ports...)}); err != nil {
				t.Fatal(err)
			}
			_ = held.Release()
		}
	}
	all(openPort)
	waits, end := g.slowReaders()
	all(shutPort)
	end()
	g.e.emptier.wait()
	if got := len(waits); got > 2 {
		t.Errorf("waited %d times for %d slots, want twice: for the first, and for those that came meanwhile", got, len(ids))
	}
	if got := g.owned(); len(got) != len(ids) {
		t.Errorf("%d slots have an owner, want %d", len(got), len(ids))
	}
	for _, id := range ids {
		g.forget(id)
	}
	g.wantNothingLeft()
}

// Rules change to and fro, identifiers are given up and come again, and no slot is emptied that has another
// owner by then, or got back its own.
func TestSlotsChangeHandsWhileTheyAreEmptied(t *testing.T) {
	g := newGround(t)
	g.e.cfg.FreeLater = true
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			id := identity.Of("shop", map[string]string{"n": string(rune('a' + n))})
			for i := range 60 {
				held, err := g.e.Lock(ctx, id)
				if err != nil {
					t.Error(err)
					return
				}
				if err := g.change(held, id, uint16(1+i)); err != nil {
					t.Errorf("change %d: %v", i, err)
				}
				if i%5 == 4 {
					if err := g.e.Forget(ctx, held, id); err != nil {
						t.Errorf("change %d: %v", i, err)
					}
				}
				_ = held.ReleaseAndRemove()
			}
		})
	}
	wg.Wait()
	g.e.emptier.wait()
	g.wantNothingLeft()
}

// change changes the rules of an identifier and requires that its slot holds them.
func (g *ground) change(held *lock.Held, id identity.Identifier, port uint16) error {
	want := allowPorts(port)
	r, err := g.e.Apply(ctx, held, Request{Identifier: id, Create: want})
	if err != nil {
		return err
	}
	found, err := g.e.objects.tables.Read(r.Create.Slot)
	if s := g.slotNow(r.Create.Slot); err == nil && (s.Identifier != id.Bytes() || s.Flags != bpf.SlotUsed|bpf.SlotComplete || s.RulesHash != want.Hash() || found.Rules.Hash() != want.Hash()) {
		err = fmt.Errorf("slot %d is %+v and holds %+v", r.Create.Slot, s, found.Rules)
	}
	return err
}

// Free slots keep maps for who fills them next, for a moment: nothing is held when rules stop to change, when the
// watcher ends, or when it was killed and the next one starts.
func TestFreeSlotsKeepMapsForAMoment(t *testing.T) {
	g := newGround(t)
	g.e.cfg.FreeLater = true
	withMaps := func() (free, used int) {
		for slot := uint32(bpf.FirstSlot); slot < bpf.MaxSlots; slot++ {
			switch has := g.e.objects.tables.HasMaps(slot); {
			case has && g.e.objects.isFree(slot):
				free++
			case has:
				used++
			}
		}
		return free, used
	}
	want := func(what string, free int) {
		t.Helper()
		g.e.emptier.wait()
		if gotFree, used := withMaps(); gotFree != free || used != 1 {
			t.Errorf("%s: %d free slots have maps, %d used ones, want %d and 1", what, gotFree, used, free)
		}
	}
	change := func(port uint16) { g.apply(Request{Identifier: idA, Create: allowPorts(port)}) }
	for port := range uint16(9) {
		change(1 + port)
		g.e.emptier.wait()
	}
	want("changes", 1)
	testenv.Eventually(t, keepFor+5*time.Second, func() error {
		if free, _ := withMaps(); free > 0 {
			return fmt.Errorf("%d free slots have maps", free)
		}
		return nil
	})

	killed := g.e
	killed.emptier.kept.purging.Lock()
	defer killed.emptier.kept.purging.Unlock()
	change(100)
	want("another change", 1)
	g.cfg.FreeLater = true
	g.open()
	if got := len(g.e.emptier.kept.slots); got != 1 {
		t.Errorf("found %d free slots with maps, want 1", got)
	}
	g.e.purge()
	want("what a killed watcher has left", 0)

	change(101)
	want("one more", 1)
	if err := g.e.Close(); err != nil {
		t.Fatal(err)
	}
	g.e = killed
	want("the watcher has ended", 0)
	g.forget(idA)
	g.wantNothingLeft()
}

// Maps of slots that are emptied for longer than free ones keep theirs are given back, too.
func TestMapsOfSlowlyEmptiedSlots(t *testing.T) {
	g := newGround(t)
	g.e.cfg.FreeLater = true
	g.e.cfg.FreeCounters = func(_ []uint32, drop func() error) error {
		time.Sleep(keepFor + 500*time.Millisecond)
		return drop()
	}
	first := g.apply(Request{Identifier: idA, Create: allowPorts(1)})
	g.apply(Request{Identifier: idA, Create: allowPorts(2)})
	g.e.emptier.wait()
	testenv.Eventually(t, keepFor+5*time.Second, func() error {
		if g.e.objects.tables.HasMaps(first.Create.Slot) {
			return fmt.Errorf("slot %d has maps", first.Create.Slot)
		}
		return nil
	})
}
