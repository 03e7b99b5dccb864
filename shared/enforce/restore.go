package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// seen are the attachments that this process has read from records, by their keys. A record that is lost
// can be written again: DEL takes the binding away first, so a binding without a record has lost it.
type seen struct {
	mu   sync.Mutex
	atts map[string]state.Attachment
}

// restore writes the records again that have been lost, or cannot be read, of attachments which this
// process has seen and which are bound in the kernel still. It returns what it did, a line each, and all
// records that can be read then.
func (e *Enforcer) restore(ctx context.Context, o *objects) ([]state.Attachment, []string, error) {
	e.seen.mu.Lock()
	defer e.seen.mu.Unlock()
	atts, listErr := e.store.ListAttachments()
	now := map[string]state.Attachment{}
	for _, a := range atts {
		now[identity.AttachmentKey(a.ContainerID, a.IfName)] = a
	}
	var restored []string
	var errs []error
	for key, a := range e.seen.atts {
		if _, ok := now[key]; ok {
			continue
		}
		back, what, err := e.restoreOne(ctx, o, a)
		errs = append(errs, err)
		if what != "" {
			restored = append(restored, what)
		}
		if back.ContainerID != "" {
			now[key], atts = back, append(atts, back)
		}
	}
	members, err := e.restoreMembers(ctx, atts)
	e.seen.atts = now
	if listErr != nil && len(restored) > 0 {
		_, listErr = e.store.ListAttachments()
	}
	return atts, append(restored, members...), errors.Join(append(errs, err, listErr)...)
}

// restoreOne looks again under the lock of the identifier whose slot the kernel has the attachment in: it
// may have been moved since its record was seen.
func (e *Enforcer) restoreOne(ctx context.Context, o *objects, a state.Attachment) (back state.Attachment, what string, err error) {
	slot, bound := o.boundTo(a)
	if bound && slot >= bpf.FirstSlot && slot < bpf.MaxSlots {
		if owner := o.slots.At(int(slot)).Identifier; owner != [16]byte{} {
			a.Identifier, a.Default = identity.FromBytes(owner), ""
		}
	}
	held, err := e.Lock(ctx, a.Identifier)
	if err != nil {
		return back, "", err
	}
	defer func() { err = errors.Join(err, e.unlock(held, a.Identifier)) }()
	read, readErr := e.store.ReadAttachment(a.ContainerID, a.IfName)
	switch {
	case readErr == nil:
		return read, "", nil
	case !errors.Is(readErr, fs.ErrNotExist) && !errors.Is(readErr, state.ErrCorrupt):
		return back, "", readErr
	}
	again, bound := o.boundTo(a)
	if !bound || again != slot {
		if errors.Is(readErr, state.ErrCorrupt) && !bound {
			return back, fmt.Sprintf("record of attachment %s/%s could not be read, and nothing is bound", a.ContainerID, a.IfName),
				e.store.DeleteAttachment(a.ContainerID, a.IfName)
		}
		return back, "", nil // DEL is at work, or it is being moved: the next round sees
	}
	if e.takenOver(a) {
		return back, "", nil
	}
	a.Slot = slot
	if err := errors.Join(e.store.AddMember(a.Identifier, a.ContainerID, a.IfName), e.store.WriteAttachment(a)); err != nil {
		return back, "", err
	}
	return a, fmt.Sprintf("record of attachment %s/%s was lost", a.ContainerID, a.IfName), nil
}

// takenOver tells whether a record of another attachment accounts for the binding: ADD of an adopted pod
// keeps its pod ids. A record that cannot be read accounts for nothing, and is restored itself.
func (e *Enforcer) takenOver(a state.Attachment) bool {
	atts, _ := e.store.ListAttachments()
	others := slices.DeleteFunc(atts, func(o state.Attachment) bool { return o.ContainerID == a.ContainerID && o.IfName == a.IfName })
	pods, _ := recordedIn(e, others)
	return slices.ContainsFunc(a.Interfaces, func(in state.Interface) bool { return pods[in.PodID] })
}

// boundTo tells in which slot the kernel has all interfaces of an attachment.
func (o *objects) boundTo(a state.Attachment) (slot uint32, bound bool) {
	for i, in := range a.Interfaces {
		p, ok, err := o.podState(in.Ifindex)
		if err != nil || !ok || p.Pod != in.PodID || (i > 0 && p.Slot != slot) {
			return 0, false
		}
		slot = p.Slot
	}
	return slot, len(a.Interfaces) > 0
}

// restoreMembers makes the files again by which the attachments of an identifier are found.
func (e *Enforcer) restoreMembers(ctx context.Context, atts []state.Attachment) (restored []string, err error) {
	of := map[identity.Identifier]map[string]bool{}
	for _, a := range atts {
		known, ok := of[a.Identifier]
		if !ok {
			members, err := e.store.Members(a.Identifier)
			if err != nil && !errors.Is(err, state.ErrCorrupt) {
				return restored, err
			}
			known = map[string]bool{}
			for _, m := range members {
				known[identity.AttachmentKey(m.ContainerID, m.IfName)] = true
			}
			of[a.Identifier] = known
		}
		if known[identity.AttachmentKey(a.ContainerID, a.IfName)] {
			continue
		}
		added, addErr := e.addMember(ctx, a)
		err = errors.Join(err, addErr)
		if added {
			restored = append(restored, fmt.Sprintf("record of attachment %s/%s was not among its identifier's", a.ContainerID, a.IfName))
		}
	}
	return restored, err
}

func (e *Enforcer) addMember(ctx context.Context, a state.Attachment) (added bool, _ error) {
	return e.underLock(ctx, a, func(state.Attachment) (bool, error) {
		members, err := e.store.Members(a.Identifier)
		for _, m := range members {
			if m.ContainerID == a.ContainerID && m.IfName == a.IfName {
				return false, nil
			}
		}
		if err != nil && !errors.Is(err, state.ErrCorrupt) {
			return false, err
		}
		return true, e.store.AddMember(a.Identifier, a.ContainerID, a.IfName)
	})
}

// lostIdentifier tells whether an identifier without a readable record must have had one, and says so.
func (a *application) lostIdentifier(err error) {
	switch {
	case err != nil:
		a.mended("record of identifier %s could not be read: %v", a.req.Identifier, err)
	case a.rec.Create.Hash == "" && a.hasRunning() && a.req.Default == "" && a.req.Verify:
		for _, m := range a.members {
			if m.Slot >= bpf.FirstSlot && m.Phase == state.PhaseEnforced && !m.bind {
				a.mended("record of identifier %s was lost", a.req.Identifier)
				return
			}
		}
	}
}
