package reconcile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// unread are the policies that were in force when this process began and that it has not read, while
// there is something that it could not read: they may be there. Without them their pods would be open.
type unread struct {
	mu       sync.Mutex
	some     bool
	policies map[policy.PolicyRef]bool
}

// SetUnread says whether a part of the policy source has not been readable since the start, and nothing is known of
// what it said. While it is so, identifiers with policies from before that are missing now stay as they are. Call it
// before Adopt.
func (r *Reconciler) SetUnread(some bool) {
	r.unread.mu.Lock()
	ends := r.unread.some && !some
	r.unread.some = some
	r.unread.mu.Unlock()
	if ends {
		r.enqueue(slices.Collect(maps.Keys(r.Errors()))...) // they need not wait for their next try
	}
}

// adopt notes which policies of an earlier run's record are missing.
func (u *unread) adopt(w *world.World, rec state.IdentifierRecord) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.some {
		return
	}
	for _, ref := range rec.Policies {
		if !w.HasPolicy(ref) {
			if u.policies == nil {
				u.policies = map[policy.PolicyRef]bool{}
			}
			u.policies[ref] = true
		}
	}
}

// keeps returns an error when an identifier has to stay as it is.
func (u *unread) keeps(r *Reconciler, id identity.Identifier) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.some || len(u.policies) == 0 {
		return nil
	}
	rec, err := r.store.ReadIdentifier(id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, state.ErrCorrupt) {
		return err
	}
	for _, ref := range rec.Policies {
		if u.policies[ref] && !r.world.HasPolicy(ref) {
			return fmt.Errorf("policy %s %s/%s is in force and may be in a manifest that cannot be read: everything stays as it is",
				ref.Kind, ref.Namespace, ref.Name)
		}
	}
	return nil
}
