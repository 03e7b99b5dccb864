package enforce

import (
	"errors"
	"fmt"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// HoldLinks holds the links of an attachment open, when the configuration says so, and pins those again
// whose pins are gone. Safe to call again.
func (e *Enforcer) HoldLinks(a state.Attachment) error {
	_, err := e.holdLinks(a)
	return err
}

// ReleaseLinks lets the links of an attachment go, by the attachment's key.
func (e *Enforcer) ReleaseLinks(key string) {
	if e.links != nil {
		e.links.Release(key)
	}
}

// holdLinks names the interfaces whose links had to be pinned again.
func (e *Enforcer) holdLinks(a state.Attachment) (repinned []string, err error) {
	if e.links == nil {
		return nil, nil
	}
	key := identity.AttachmentKey(a.ContainerID, a.IfName)
	for _, in := range a.Interfaces {
		if attach.Mode(in.Mode) != attach.ModeTCX {
			continue
		}
		for _, side := range attach.Sides {
			again, holdErr := e.links.Hold(key, in.Ifindex, side, e.linkPin(in, side))
			switch {
			case errors.Is(holdErr, attach.ErrTooMany):
				e.tooMany.Do(func() { e.log.Warn("some links are as safe as their pins only", "error", holdErr) })
			case holdErr != nil:
				err = errors.Join(err, fmt.Errorf("%s of interface %s: %w", side, in.Name, holdErr))
			case again:
				repinned = append(repinned, fmt.Sprintf("link %s of %s", side, in.Name))
			}
		}
	}
	return repinned, err
}

// holdMember holds the links of a member that was just verified.
func (a *application) holdMember(m *member) error {
	repinned, err := a.e.holdLinks(m.Attachment)
	for _, what := range repinned {
		a.mended("pinned objects: %s was not pinned", what)
	}
	return err
}

// keepLinks lets the links go that no record accounts for.
func (e *Enforcer) keepLinks(atts []state.Attachment) {
	if e.links == nil {
		return
	}
	recorded := map[string]bool{}
	for _, a := range atts {
		recorded[identity.AttachmentKey(a.ContainerID, a.IfName)] = true
	}
	e.links.Keep(func(key string) bool { return recorded[key] })
}
