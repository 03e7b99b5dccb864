package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// tempAge is how old a half-made pin is before nobody can be making it any more.
const tempAge = time.Minute

// Sweep removes what killed writers have left and no record accounts for: bindings of attachments that
// have no record, pins of their links once the interface is gone, slots of identifiers that have neither record nor attachment, and
// half-made pins. What the programs know of the node is made again what SetNode was told last. It returns what it did, a line each. When a record cannot be read it leaves
// bindings and links alone, since they may be that record's.
func (e *Enforcer) Sweep(ctx context.Context) ([]string, error) {
	o, err := e.current(ctx)
	if err != nil {
		return nil, err
	}
	// What is in the kernel is looked at before the records: a writer records its intent first, so
	// what has no record by then has lost it.
	bindings, err := o.bindings()
	if err != nil {
		return nil, err
	}
	links, err := e.pins.Links()
	if err != nil {
		return nil, err
	}
	atts, swept, err := e.restore(ctx, o)
	swept = append(e.takeNotes(), swept...)
	mended, nodeErr := e.mendNode(ctx, o)
	swept = append(swept, mended...)
	if err != nil {
		return swept, fmt.Errorf("sweep: %w", errors.Join(err, nodeErr))
	}
	e.keepLinks(atts)
	recorded, pinned := recordedIn(e, atts)
	errs := []error{nodeErr}
	for _, in := range bindings {
		if recorded[in.PodID] {
			continue
		}
		errs = append(errs, o.unbind(in))
		swept = append(swept, fmt.Sprintf("binding of interface %d as pod %d", in.Ifindex, in.PodID))
	}
	for _, link := range links {
		path := filepath.Join(filepath.Dir(e.pins.Link(0, attach.ToPod.String())), filepath.Base(link))
		if pinned[path] {
			continue
		}
		// A link on an interface that is there holds it closed; it goes with the interface.
		severed, err := attach.Severed(path)
		if err == nil && severed {
			err = pins.Remove(path)
			swept = append(swept, "link pin "+filepath.Base(link))
		}
		errs = append(errs, err)
	}
	swept = append(swept, e.sweepDefaults(o)...)
	slots, err := e.sweepSlots(ctx, o)
	swept = append(swept, slots...)
	return swept, errors.Join(append(errs, err, e.pins.SweepTemp(tempAge), e.store.SweepTemp(tempAge), e.store.SweepMembers(tempAge))...)
}

// recordedIn tells which pod ids and link pins the records account for.
func recordedIn(e *Enforcer, atts []state.Attachment) (pods map[uint32]bool, links map[string]bool) {
	pods, links = map[uint32]bool{}, map[string]bool{}
	for _, a := range atts {
		for _, in := range a.Interfaces {
			pods[in.PodID] = true
			for _, side := range attach.Sides {
				links[e.linkPin(in, side)] = true
			}
		}
	}
	return pods, links
}

// bindings lists what pod_state holds, and frees elements that a killed writer had claimed.
func (o *objects) bindings() ([]state.Interface, error) {
	var found []state.Interface
	for i := range o.pods.Len() {
		p := o.pods.At(i)
		switch index := atomic.LoadUint32(&p.Ifindex); index {
		case 0:
		case claimed:
			time.Sleep(10 * time.Millisecond) // a writer needs nanoseconds
			atomic.CompareAndSwapUint32(&p.Ifindex, claimed, 0)
		default:
			found = append(found, state.Interface{Ifindex: int(index), PodID: atomic.LoadUint32(&p.Pod)})
		}
	}
	var key uint32
	var p bpf.PodState
	it := o.maps["pod_state_hash"].Iterate()
	for it.Next(&key, &p) {
		found = append(found, state.Interface{Ifindex: int(p.Ifindex), PodID: p.Pod})
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("list bindings: %w", err)
	}
	return found, nil
}

// sweepSlots frees the slots of identifiers that nobody knows.
func (e *Enforcer) sweepSlots(ctx context.Context, o *objects) (swept []string, err error) {
	seen := map[[16]byte]bool{}
	for slot := bpf.FirstSlot; slot < bpf.MaxSlots && ctx.Err() == nil; slot++ {
		s := o.slots.At(slot)
		if s.Identifier == [16]byte{} || seen[s.Identifier] {
			continue
		}
		seen[s.Identifier] = true
		id := identity.FromBytes(s.Identifier)
		if _, readErr := e.store.ReadIdentifier(id); !errors.Is(readErr, fs.ErrNotExist) {
			continue
		}
		freed, freeErr := e.sweepIdentifier(ctx, o, id)
		if freed {
			swept = append(swept, fmt.Sprintf("slots of identifier %s", id))
		}
		err = errors.Join(err, freeErr)
	}
	return swept, err
}

// sweepIdentifier frees the slots of an identifier, if it is as unknown under its lock as before.
func (e *Enforcer) sweepIdentifier(ctx context.Context, o *objects, id identity.Identifier) (freed bool, err error) {
	held, err := e.Lock(ctx, id)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, e.unlock(held, id)) }()
	if _, err := e.store.ReadIdentifier(id); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	members, err := e.store.Members(id)
	if err != nil || len(members) > 0 {
		return false, err
	}
	freed, err = e.sweepFree(o, id.Bytes())
	return freed, err
}

// sweepFree frees all slots of an identifier, and reports whether any was.
func (e *Enforcer) sweepFree(o *objects, id [16]byte) (bool, error) {
	before := o.slotsOf(id)
	err := e.freeSlots(o, id, nil, false)
	return len(o.slotsOf(id)) < len(before), err
}

// slotsOf lists the slots of an identifier.
func (o *objects) slotsOf(id [16]byte) (slots []uint32) {
	for slot := uint32(bpf.FirstSlot); slot < bpf.MaxSlots; slot++ {
		if o.slots.At(int(slot)).Identifier == id {
			slots = append(slots, slot)
		}
	}
	return slots
}

// boundSlots tells to which slots interfaces are bound.
func (o *objects) boundSlots() (map[uint32]bool, error) {
	bound := map[uint32]bool{}
	for i := range o.pods.Len() {
		if p := o.pods.At(i); atomic.LoadUint32(&p.Ifindex) != 0 {
			bound[atomic.LoadUint32(&p.Slot)] = true
		}
	}
	var key uint32
	var p bpf.PodState
	it := o.maps["pod_state_hash"].Iterate()
	for it.Next(&key, &p) {
		bound[p.Slot] = true
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("list bindings: %w", err)
	}
	return bound, nil
}
