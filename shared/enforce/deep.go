package enforce

import (
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/state"
)

// A slot's hash says what its last writer left there. That nobody has changed it since is known only by
// reading all of it, which an Apply with Verify does as long as it costs less than a share of the time:
// on a node with few rules every time, on one with many in turn.
const (
	deepShare = 0.05        // of one processor
	deepBurst = time.Second // of work that may be done at once
)

// deepBudget bounds the time that is spent on reading rules back. The zero value is full.
type deepBudget struct {
	mu    sync.Mutex
	spent time.Duration
	since time.Time
}

// take runs f unless the budget is used up.
func (b *deepBudget) take(f func() error) error {
	if !b.allow(time.Now()) {
		return nil
	}
	began := time.Now()
	err := f()
	b.mu.Lock()
	b.spent += time.Since(began)
	b.mu.Unlock()
	return err
}

func (b *deepBudget) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-time.Duration(deepShare*float64(now.Sub(b.since))))
	b.since = now
	return b.spent < deepBurst
}

// intact tells whether a slot of the identifier still holds what its hash says. When it does not, the hash
// is taken away: the next write compares with what the kernel holds.
func (a *application) intact(slot uint32, hash [32]byte) bool {
	if !a.req.Verify {
		return true
	}
	err := a.e.deep.take(func() error { return a.o.tables.Verify(slot, hash) })
	if err == nil {
		return true
	}
	a.mended("rules of slot %d were changed by another: %v", slot, err)
	a.o.setSlotHash(slot, [32]byte{})
	a.e.forget(slot)
	return false
}

// noteSlot reports a slot that is not what the record says, before write brings it back.
func (a *application) noteSlot(ref state.SlotRef, wanted [32]byte) {
	if ref.Hash == "" || ref.Slot < bpf.FirstSlot {
		return
	}
	hash := a.o.slotHash(ref.Slot)
	switch {
	case !a.owns(ref.Slot):
		a.mended("slot %d was not complete, or another's", ref.Slot)
	case hash == [32]byte{}:
		a.mended("rules of slot %d were being changed when the writer ended", ref.Slot)
	case ref.Hash == hex.EncodeToString(wanted[:]) && hash != wanted:
		a.mended("rules of slot %d had another hash than recorded", ref.Slot)
	}
}

// noteBinding reports an interface that is not bound as it is recorded, before bind brings it back.
func (a *application) noteBinding(m *member, in state.Interface) error {
	if m.Phase != state.PhaseEnforced {
		return nil
	}
	was, ok, err := a.o.podState(in.Ifindex)
	want := bpf.PodState{Ifindex: uint32(in.Ifindex), Slot: m.Slot, Pod: in.PodID}
	fill(&want, in)
	switch {
	case err != nil:
		return err
	case !ok:
		a.mendedOn(in.Name, "pod_state of %s was missing", in.Name)
	case was != want:
		a.mendedOn(in.Name, "pod_state of %s was changed: slot %d, pod %d, not slot %d, pod %d", in.Name, was.Slot, was.Pod, want.Slot, want.Pod)
	}
	return nil
}

func (a *application) mended(format string, args ...any) { a.mendedOn("", format, args...) }

func (a *application) mendedOn(device, format string, args ...any) {
	a.result.Repaired = append(a.result.Repaired, Repair{device, fmt.Sprintf(format, args...)})
}

// sweepDefaults brings the default slots back, and the counters of the node in front of what is in use.
func (e *Enforcer) sweepDefaults(o *objects) []string {
	var swept []string
	for slot, onMiss := range map[int]uint32{bpf.SlotDefaultAllow: bpf.ResAllow, bpf.SlotDefaultDeny: 0} {
		s := o.slots.At(slot)
		want := bpf.Slot{Generation: atomic.LoadUint32(&s.Generation), Flags: bpf.SlotUsed | bpf.SlotComplete, OnMiss: [2]uint32{onMiss, onMiss}}
		got := *s
		got.ChangedAt = 0
		if got == want {
			continue
		}
		for i := range s.OnMiss {
			atomic.StoreUint32(&s.OnMiss[i], onMiss)
			for f := range s.Lens[i] {
				atomic.StoreUint32(&s.Lens[i][f], 0)
				atomic.StoreUint32(&s.Trie[i][f], 0)
			}
		}
		s.RulesHash, s.Identifier = want.RulesHash, want.Identifier
		atomic.StoreUint32(&s.Flags, want.Flags)
		o.renew(uint32(slot)) // for flows that what it was has admitted
		swept = append(swept, fmt.Sprintf("slot %d is a default slot and was changed", slot))
	}
	var pod, generation uint32
	for i := range o.pods.Len() {
		if p := o.pods.At(i); atomic.LoadUint32(&p.Ifindex) != 0 {
			pod = max(pod, atomic.LoadUint32(&p.Pod))
		}
	}
	for i := range bpf.MaxSlots {
		generation = max(generation, atomic.LoadUint32(&o.slots.At(i).Generation))
	}
	n := o.node.At(0)
	raise := func(p *uint32, least uint32, name string) {
		if was := atomic.LoadUint32(p); was < least && least-was < 1<<31 {
			atomic.CompareAndSwapUint32(p, was, least)
			swept = append(swept, fmt.Sprintf("record of the last %s was behind: %d, %d is in use", name, was, least))
		}
	}
	raise(&n.NextPod, pod, "pod id")
	raise(&n.NextGeneration, generation, "generation")
	for _, slot := range o.tellApart() {
		swept = append(swept, fmt.Sprintf("slot %d had the generation of another", slot))
	}
	return swept
}
