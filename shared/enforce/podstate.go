package enforce

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/rules"
	"github.com/latch-cni/latch/shared/state"
)

// claimed marks an element of the pod_state array that a writer is filling. No interface has it.
const claimed = 0xffffffff

// nextPod gives a pod id that the node has never used.
func (o *objects) nextPod() uint32 {
	for {
		if id := atomic.AddUint32(&o.node.At(0).NextPod, 1); id != 0 {
			return id
		}
	}
}

// bind binds an interface to a slot: in the array, or in the hash behind it when another one has its place.
func (o *objects) bind(in state.Interface, slot uint32) error {
	if !o.bindIndexed(in, slot) {
		return o.bindHashed(in, slot)
	}
	return o.unbindHashed(in) // where it was if it has only now got its place, or an older interface with its index
}

// bindIndexed binds an interface in the array, unless another one has its place. Moving a bound interface is
// one aligned store. A new element becomes visible with its ifindex, stored last.
func (o *objects) bindIndexed(in state.Interface, slot uint32) bool {
	index := uint32(in.Ifindex)
	p := o.pods.At(in.Ifindex & 0xffff)
	switch atomic.LoadUint32(&p.Ifindex) {
	case index:
		if atomic.LoadUint32(&p.Pod) == in.PodID {
			want := bpf.PodState{}
			if fill(&want, in); p.Flags != want.Flags || p.Addr4 != want.Addr4 || p.Addr6 != want.Addr6 {
				fill(p, in) // somebody else has been here
			}
			atomic.StoreUint32(&p.Slot, slot)
			return true
		}
		// The interface is not the one that was bound here: its index is used again.
		atomic.StoreUint32(&p.Ifindex, claimed)
	default:
		if !atomic.CompareAndSwapUint32(&p.Ifindex, 0, claimed) {
			return false
		}
	}
	atomic.StoreUint32(&p.Slot, slot)
	atomic.StoreUint32(&p.Pod, in.PodID)
	fill(p, in)
	atomic.StoreUint32(&p.Ifindex, index)
	return true
}

// bindHashed binds an interface whose place in the array another one has.
func (o *objects) bindHashed(in state.Interface, slot uint32) error {
	p := bpf.PodState{Ifindex: uint32(in.Ifindex), Slot: slot, Pod: in.PodID}
	fill(&p, in)
	if err := o.maps["pod_state_hash"].Put(p.Ifindex, &p); err != nil {
		return fmt.Errorf("write pod_state: %w", err)
	}
	return nil
}

func fill(p *bpf.PodState, in state.Interface) {
	p.Flags, p.Addr4, p.Addr6 = 0, 0, [16]byte{}
	if in.AntiSpoof {
		p.Flags = bpf.PodAntispoof
	}
	if in.Addr4.Is4() {
		p.Addr4 = bpf.Addr4(in.Addr4)
	}
	if in.Addr6.Is6() {
		p.Addr6 = in.Addr6.As16()
	}
}

// podState reads what an interface is bound to. It reports false when it is bound to nothing.
func (o *objects) podState(ifindex int) (bpf.PodState, bool, error) {
	p := o.pods.At(ifindex & 0xffff)
	if atomic.LoadUint32(&p.Ifindex) == uint32(ifindex) {
		return *p, true, nil
	}
	var hashed bpf.PodState
	err := o.maps["pod_state_hash"].Lookup(uint32(ifindex), &hashed)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return bpf.PodState{}, false, nil
	}
	if err != nil {
		return bpf.PodState{}, false, fmt.Errorf("read pod_state: %w", err)
	}
	return hashed, true, nil
}

// unbind takes away the binding of an interface, if it is still the one with this pod id. From then
// on a program attached to it drops everything.
func (o *objects) unbind(in state.Interface) error {
	p := o.pods.At(in.Ifindex & 0xffff)
	if atomic.LoadUint32(&p.Pod) == in.PodID {
		atomic.CompareAndSwapUint32(&p.Ifindex, uint32(in.Ifindex), 0)
	}
	hashed, ok, err := o.podState(in.Ifindex)
	if err != nil || !ok || hashed.Pod != in.PodID {
		return err
	}
	return o.unbindHashed(in)
}

func (o *objects) unbindHashed(in state.Interface) error {
	err := o.maps["pod_state_hash"].Delete(uint32(in.Ifindex))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete pod_state: %w", err)
	}
	return nil
}

// query asks the kernel what one side of an interface runs.
func (o *objects) query(hooks *attach.Interface, side attach.Side) (attach.Status, error) {
	id, err := progID(o.progs[side.String()])
	if err != nil {
		return attach.Status{}, err
	}
	return hooks.Query(side, id)
}

// verify asks the kernel whether an interface is in force with a slot, and how it is attached.
func (e *Enforcer) verify(o *objects, in state.Interface, slot uint32) (attach.Mode, error) {
	hooks, err := e.hooks(in)
	if err != nil {
		return "", err
	}
	defer hooks.Close()
	var mode attach.Mode
	for _, side := range attach.Sides {
		s, err := o.query(hooks, side)
		switch {
		case err != nil:
			return "", err
		case !s.Attached:
			return "", fmt.Errorf("verify %s: our program is not attached", side)
		case !s.Effective:
			return "", fmt.Errorf("verify %s: %v runs in front of our program and can let packets by", side, s.Ahead)
		}
		mode = s.Mode
	}
	p, ok, err := o.podState(in.Ifindex)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "", errors.New("verify pod_state: interface is not bound")
	case p.Slot != slot || p.Pod != in.PodID:
		return "", fmt.Errorf("verify pod_state: bound to slot %d as pod %d, not to slot %d as pod %d", p.Slot, p.Pod, slot, in.PodID)
	}
	if atomic.LoadUint32(&o.slots.At(int(slot)).Flags)&bpf.SlotComplete == 0 {
		return "", fmt.Errorf("verify slot %d: not complete", slot)
	}
	return mode, nil
}

func progID(p *ebpf.Program) (uint32, error) {
	id, err := bpf.ProgramID(p)
	return uint32(id), err
}

// slotHash reads the hash of a slot's rules word by word; it is only compared, and only under the
// lock of the slot's identifier.
func (o *objects) slotHash(slot uint32) [32]byte { return o.slots.At(int(slot)).RulesHash }

// setSlotHash stores the hash of a slot's rules. Programs do not read it.
func (o *objects) setSlotHash(slot uint32, hash [32]byte) {
	words := (*[4]uint64)(unsafe.Pointer(&hash))
	to := (*[4]uint64)(unsafe.Pointer(&o.slots.At(int(slot)).RulesHash))
	for i := range words {
		atomic.StoreUint64(&to[i], words[i])
	}
}

// contentOf returns what the kernel holds in a slot: from memory when the slot's hash says that this
// process wrote it last, else read back.
func (e *Enforcer) contentOf(o *objects, slot uint32) (*rules.Content, error) {
	e.cacheMu.Lock()
	c, ok := e.content[slot]
	e.cacheMu.Unlock()
	if ok && c.objects == o && c.hash == o.slotHash(slot) {
		return c.content, nil
	}
	if ok {
		e.noteFreed(slot) // by somebody else
	}
	return o.tables.Read(slot)
}

func (e *Enforcer) remember(o *objects, slot uint32, hash [32]byte, content *rules.Content) {
	e.cacheMu.Lock()
	defer e.cacheMu.Unlock()
	e.content[slot] = cached{o, hash, content}
}

func (e *Enforcer) forget(slot uint32) {
	e.cacheMu.Lock()
	defer e.cacheMu.Unlock()
	delete(e.content, slot)
}

// noteFreed remembers when memory of a slot became free for its next update.
func (e *Enforcer) noteFreed(slot uint32) {
	e.cacheMu.Lock()
	defer e.cacheMu.Unlock()
	e.freed[slot] = time.Now()
}

// waitFreed makes sure that no program reads what the slot's last update freed. A slot that this process has
// not updated may have been updated by another one, a moment before this one opened the objects or, when it
// is not what this one has left there, a moment ago.
func (e *Enforcer) waitFreed(slot uint32) {
	e.cacheMu.Lock()
	at, ok := e.freed[slot]
	if !ok {
		at = e.opened
	}
	e.cacheMu.Unlock()
	if time.Since(at) < time.Second {
		e.grace.after(at)
	}
}
