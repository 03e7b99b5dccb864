package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// Consistent looks from outside, while writers are at work and without their locks, for what must be so at
// every instant: every attachment that is recorded to be in force, and is so still a moment later, is bound
// to a complete slot of the identifier that its record names, or to a default slot, and runs the pinned
// programs on both sides, first.
func (s *Stage) Consistent() error {
	return s.OnNode(func() error {
		store := state.New(s.Node.StateDir)
		atts, err := store.ListAttachments()
		if err != nil {
			return err
		}
		k, err := openKernel(pins.New(s.Node.Bpffs))
		if err != nil {
			return err
		}
		defer k.close()
		for _, a := range atts {
			if a.Phase != state.PhaseEnforced {
				continue
			}
			if err := k.settled(store, a); err != nil {
				return fmt.Errorf("attachment of %s/%s (%s): %w", a.PodNamespace, a.PodName, a.ContainerID, err)
			}
		}
		return nil
	})
}

type kernel struct {
	slots *bpf.Array[bpf.Slot]
	pods  *bpf.Array[bpf.PodState]
	progs map[attach.Side]uint32
}

func openKernel(dir pins.Dir) (*kernel, error) {
	k := &kernel{progs: map[attach.Side]uint32{}}
	for _, side := range attach.Sides {
		p, err := pins.LoadProgram(dir.Prog(side.String()), nil)
		if err != nil {
			return nil, err
		}
		info, err := p.Info()
		_ = p.Close()
		if err != nil {
			return nil, err
		}
		id, _ := info.ID()
		k.progs[side] = uint32(id)
	}
	slots, err := pins.LoadMap(dir.Map("slots"), nil)
	if err != nil {
		return nil, err
	}
	defer slots.Close()
	pods, err := pins.LoadMap(dir.Map("pod_state"), nil)
	if err != nil {
		return nil, err
	}
	defer pods.Close()
	k.slots, err = bpf.ViewArray[bpf.Slot](slots)
	if err == nil {
		k.pods, err = bpf.ViewArray[bpf.PodState](pods)
	}
	return k, err
}

func (k *kernel) close() {
	if k.slots != nil {
		_ = k.slots.Close()
	}
	if k.pods != nil {
		_ = k.pods.Close()
	}
}

// settled looks again while a writer may be between two steps: it is wrong when it stays wrong for a
// second while the record stays the same.
func (k *kernel) settled(store state.Store, a state.Attachment) error {
	var err error
	for range 20 {
		if err = k.inForce(a); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
		now, readErr := store.ReadAttachment(a.ContainerID, a.IfName)
		if errors.Is(readErr, fs.ErrNotExist) {
			return nil
		}
		if readErr != nil {
			return readErr
		}
		a = now
	}
	return err
}

func (k *kernel) inForce(a state.Attachment) error {
	for _, in := range a.Interfaces {
		for _, side := range attach.Sides {
			st, err := attach.Query(in.Ifindex, side, k.progs[side])
			switch {
			case errors.Is(err, attach.ErrGone):
				return nil // the sandbox ended without DEL
			case err != nil:
				return err
			case !st.Effective:
				return fmt.Errorf("%s: %s is not in force: %+v", in.Name, side, st)
			}
		}
		p := k.pods.At(in.Ifindex & 0xffff)
		if atomic.LoadUint32(&p.Ifindex) != uint32(in.Ifindex) || atomic.LoadUint32(&p.Pod) != in.PodID {
			return fmt.Errorf("%s is not bound", in.Name)
		}
		slot := atomic.LoadUint32(&p.Slot)
		if slot != a.Slot {
			return fmt.Errorf("%s is bound to slot %d, recorded in slot %d", in.Name, slot, a.Slot)
		}
		h := k.slots.At(int(slot))
		if atomic.LoadUint32(&h.Flags)&bpf.SlotComplete == 0 {
			return fmt.Errorf("%s is bound to slot %d, which is not complete", in.Name, slot)
		}
		if a.Default == "" && h.Identifier != a.Identifier.Bytes() {
			return fmt.Errorf("%s is bound to slot %d of another identifier", in.Name, slot)
		}
	}
	return nil
}
