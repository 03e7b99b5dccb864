package enforce

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/state"
)

// member is one attachment of the identifier.
type member struct {
	state.Attachment
	recorded state.Attachment // as its record says
	bind     bool             // asked for by Bind
	lost     map[int]bool     // interfaces, by index, that are no more or a later attachment's
	failed   bool             // it could not be verified

	adopted *state.Attachment // record that this one takes the place of
}

// failedAt is what an error with a member means for the run: it ends with one of Bind, and goes on for
// the others, and for those that are adopted.
func (a *application) failedAt(m *member, err error) error {
	if err == nil || (m.bind && !m.Adopted) {
		return err
	}
	m.failed = true
	a.failures = append(a.failures, err)
	return nil
}

// gone tells whether all interfaces of a member are lost.
func (m *member) gone() bool { return len(m.lost) > 0 && len(m.lost) == len(m.Interfaces) }

// lose leaves out one interface of a member: the others are looked after as ever. Who asks to bind what is no
// more is told so when all is done for the others.
func (a *application) lose(m *member, in state.Interface) {
	if m.lost == nil {
		m.lost = map[int]bool{}
	}
	m.lost[in.Ifindex] = true
	if m.bind && !m.Adopted {
		m.failed = true
		a.failures = append(a.failures, fmt.Errorf("interface %s (index %d): %w", in.Name, in.Ifindex, attach.ErrGone))
	}
}

// bound completes an attachment of Bind with what an earlier run recorded of it: an interface that
// is still the same keeps its pod id, and with it its flows.
func (a *application) bound(b state.Attachment) (*member, error) {
	known, err := a.e.readAttachment(b.ContainerID, b.IfName)
	if err != nil {
		return nil, err
	}
	if known.Identifier != "" && known.Identifier != a.req.Identifier {
		lock.MustCover(a.held, known.Identifier)
	}
	m := &member{Attachment: b, recorded: known, bind: true}
	m.Identifier, m.Default, m.Slot = a.req.Identifier, a.req.Default, known.Slot
	if known.Identifier == m.Identifier {
		m.Rules = known.Rules
	}
	m.CreatedAt = known.CreatedAt
	if m.CreatedAt.IsZero() {
		m.CreatedAt = time.Now()
	}
	known, m.adopted = a.inherit(known, b)
	for i := range m.Interfaces {
		in := &m.Interfaces[i]
		for _, was := range known.Interfaces {
			if was.Ifindex == in.Ifindex && was.Name == in.Name {
				in.PodID, in.Mode = was.PodID, was.Mode
			}
		}
		if in.PodID == 0 {
			in.PodID = a.o.nextPod()
		}
	}
	return m, nil
}

// intent records the attachments of Bind before anything is written for them.
func (a *application) intent(context.Context) error {
	for _, m := range a.members {
		if !m.bind {
			continue
		}
		known := m.recorded
		m.Phase = state.PhaseIntent
		if known.Phase == state.PhaseEnforced {
			m.Phase = state.PhaseEnforced // it is being moved, and enforced all the while
		}
		if err := a.e.store.AddMember(m.Identifier, m.ContainerID, m.IfName); err != nil {
			return err
		}
		if err := a.e.store.WriteAttachment(m.Attachment); err != nil {
			return err
		}
		if known.Identifier != "" && known.Identifier != m.Identifier {
			if err := a.e.store.RemoveMember(known.Identifier, m.ContainerID, m.IfName); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasSuccessor tells whether a member has lost an interface to a later attachment: indexes are used
// again, and a plugin that makes the veth inside the sandbox gets the same one every time. A record that
// no DEL has ended must not touch what is bound there now.
func (a *application) hasSuccessor(m *member, in state.Interface) (bool, error) {
	if m.bind && m.Phase == state.PhaseIntent {
		return false, nil // it was just found
	}
	p, bound, err := a.o.podState(in.Ifindex)
	if err != nil || !bound || int32(p.Pod-in.PodID) <= 0 { // ids only rise
		return false, err
	}
	all, err := a.e.store.ListAttachments()
	for _, other := range all {
		if slices.ContainsFunc(other.Interfaces, func(i state.Interface) bool { return i.PodID == p.Pod }) {
			return true, nil
		}
	}
	return false, err // nobody's: the id was changed by hand
}

// slotOf is the slot of a member: a new pod gets Create, a running one stays where it was, followed
// to the slot that took its place. Which of the two it has is told by its own record, which holds whatever
// could not be written besides. Records of early builds tell by the number of the slot.
func (a *application) slotOf(m *member) uint32 {
	switch {
	case m.Default == "allow":
		return bpf.SlotDefaultAllow
	case m.Default == "deny":
		return bpf.SlotDefaultDeny
	case m.bind && m.Phase == state.PhaseIntent && m.Adopted:
		return a.rec.Running.Slot
	case m.bind && m.Phase == state.PhaseIntent, m.Rules == state.RulesCreate:
		return a.rec.Create.Slot
	case m.Rules == "" && m.Slot == a.old.Create.Slot && a.old.Create.Slot != a.old.Running.Slot:
		return a.rec.Create.Slot
	}
	return a.rec.Running.Slot
}

// rulesOf tells which of the identifier's rules a member has in its slot.
func (a *application) rulesOf(m *member) string {
	switch {
	case m.Default != "":
		return ""
	case m.Slot == a.rec.Running.Slot: // also when all have the same
		return state.RulesRunning
	}
	return state.RulesCreate
}

// clone copies what Apply changes.
func clone(a state.Attachment) state.Attachment {
	a.Interfaces = slices.Clone(a.Interfaces)
	return a
}
