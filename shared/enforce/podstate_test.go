package enforce

import (
	"testing"

	"github.com/latch-cni/latch/shared/state"
)

// Two interfaces have one place in the array. The second moves there from the hash when the first is gone, and
// leaves nothing behind: neither its old slot nor its binding is that of the next interface with its index.
func TestPlaceInTheArrayChangesHands(t *testing.T) {
	g := newGround(t)
	o := g.e.objects
	first, second := state.Interface{Ifindex: 0x10000 + 7, PodID: 1}, state.Interface{Ifindex: 0x20000 + 7, PodID: 2}
	next := state.Interface{Ifindex: second.Ifindex, PodID: 3}
	bind := func(in state.Interface, slot uint32) {
		t.Helper()
		if err := o.bind(in, slot); err != nil {
			t.Fatal(err)
		}
		if p, ok, err := o.podState(in.Ifindex); err != nil || !ok || p.Slot != slot || p.Pod != in.PodID {
			t.Fatalf("bound %+v to slot %d: %+v, %v, %v", in, slot, p, ok, err)
		}
	}
	unbind := func(in state.Interface) {
		t.Helper()
		if err := o.unbind(in); err != nil {
			t.Fatal(err)
		}
		if p, ok, err := o.podState(in.Ifindex); ok || err != nil {
			t.Errorf("unbound %+v: %+v is left, %v", in, p, err)
		}
	}
	bind(first, 10)
	bind(second, 11)
	unbind(first)
	bind(second, 12)
	slots, err := o.boundSlots()
	if err != nil || len(slots) != 1 || !slots[12] {
		t.Errorf("bound slots %v, %v", slots, err)
	}
	bind(next, 13)
	unbind(next)
}
