package enforce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// ErrNotPrepared says that the identifier has no complete rules in the kernel yet. Try again when
// the watcher has written them.
var ErrNotPrepared = errors.New("identifier is not prepared")

// Request is the desired state of one identifier.
type Request struct {
	Identifier identity.Identifier
	Namespace  string
	Labels     map[string]string

	// Create are the rules for pods being created, Running those for pods that run. Both nil leaves
	// the rules as they are; Running nil means the same as Create.
	Create, Running *policy.Rules
	// HoldRunning leaves running pods with the rules that they have, whatever these are.
	HoldRunning bool
	Policies    []policy.PolicyRef // that select the identifier, for the record
	Pending     []policy.PolicyRef // of these, the ones whose rules are not known yet
	Settling    []policy.PolicyRef // of these, the ones that are not in force for running pods as a whole yet

	// Bind are attachments to put under the identifier; their interfaces need Ifindex, Name and
	// addresses. One that is bound elsewhere is moved, in one step for each interface; the lock
	// must then cover the identifier that it leaves, too.
	Bind []state.Attachment

	// Default binds Bind to a default slot, "allow" or "deny", instead of rules: nothing is known
	// about the pod. The identifier is then the one of the pod's name.
	Default string

	// Seed returns the live flows of addresses. It is called for those of Bind that are adopted.
	Seed func(addrs []netip.Addr) ([]Flow, error)

	// Verify asks the kernel about every interface of the identifier, not only those of Bind.
	Verify bool
}

// Result says what Apply found and did.
type Result struct {
	Changed  bool               // the kernel's rules were changed
	Create   state.SlotRef      // slot that new pods get
	Running  state.SlotRef      // slot of running pods
	Gone     []state.Attachment // bound before, but their interfaces are no more; left for Remove
	Repaired []Repair           // what Verify found wrong and mended
}

// Repair is something that Apply found wrong and mended.
type Repair struct {
	Interface string // whose it was; empty: it was about rules or records, and all interfaces of the identifier
	What      string
}

// String is the repair in one line.
func (r Repair) String() string { return r.What }

// Apply brings the identifier to the desired state; see the package comment for the order and for
// what holds when it is interrupted. It may be called again with the same request at any time. When
// it fails, what was in force before is in force still, but for a slot that has its new rules already, whole;
// an interface of Bind is either enforced or closed.
//
// It panics unless held covers the identifier. Errors: ErrNotPrepared when rules are neither given
// nor in the kernel; attach.ErrGone when an interface of Bind does not exist.
func (e *Enforcer) Apply(ctx context.Context, held *lock.Held, req Request) (Result, error) {
	lock.MustCover(held, req.Identifier)
	if e.cfg.BindOnly && req.Create != nil {
		return Result{}, errors.New("rules given to an enforcer that only binds")
	}
	o, err := e.current(ctx)
	if err != nil {
		return Result{}, err
	}
	a := &application{e: e, o: o, held: held, req: req}
	if err := a.begin(); err != nil {
		return Result{}, err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"intent", a.intent},
		{"rules", a.rules},
		{"slot", a.complete},
		{"pod_state", a.bind},
		{"seed", a.seed},
		{"attach", a.attach},
		{"verify", a.verify},
		{"record", a.record},
	} {
		// A writer that was stopped for long must not go on when another may have taken its place.
		if err := held.Current(); err != nil {
			return a.result, fmt.Errorf("%s: %w", step.name, err)
		}
		if err := step.run(ctx); err != nil {
			return a.result, errors.Join(fmt.Errorf("%s: %w", step.name, err), a.free(a.rec, a.old))
		}
		after(step.name)
	}
	return a.result, errors.Join(append(a.failures, a.free(a.rec))...)
}

// application is one run of Apply.
type application struct {
	e    *Enforcer
	o    *objects
	held *lock.Held
	req  Request

	rec     state.IdentifierRecord // as it is, then as it shall be
	old     state.IdentifierRecord
	members []*member
	pending []*change // slots written by this run, not yet complete
	// failures are errors of members that were only to be verified. They are returned when all is done
	// for the others.
	failures []error
	result   Result
}

// begin reads what is recorded and refuses what cannot be done.
func (a *application) begin() error {
	rec, corrupt := a.e.readIdentifier(a.req.Identifier)
	if corrupt != nil {
		if !errors.Is(corrupt, state.ErrCorrupt) || a.req.Create == nil {
			return corrupt
		}
		rec = state.IdentifierRecord{Identifier: a.req.Identifier} // it is written anew
	}
	a.rec, a.old = rec, rec
	if a.req.Default == "" && a.req.Create == nil && !a.prepared(rec.Create) {
		return fmt.Errorf("%w: %s", ErrNotPrepared, a.req.Identifier)
	}
	bound := map[string]bool{}
	for _, b := range a.req.Bind {
		m, err := a.bound(b)
		if err != nil {
			return err
		}
		a.members = append(a.members, m)
		bound[identity.AttachmentKey(b.ContainerID, b.IfName)] = true
	}
	if a.req.Create == nil && !a.req.Verify {
		return nil // nothing changes for the others
	}
	others, err := a.e.store.Members(a.req.Identifier)
	defer func() { a.lostIdentifier(corrupt) }()
	for _, att := range others {
		if !bound[identity.AttachmentKey(att.ContainerID, att.IfName)] {
			a.members = append(a.members, &member{Attachment: clone(att), recorded: att})
		}
	}
	if errors.Is(err, state.ErrCorrupt) {
		// The others must not wait for it. What it stands for is restored by the sweep, or closed.
		a.e.log.Error("an attachment's record cannot be read, going on without it", "identifier", a.req.Identifier, "error", err)
		return nil
	}
	return err
}

// bind writes pod_state: each interface to the slot that it belongs to.
func (a *application) bind(context.Context) error {
	for _, m := range a.members {
		for _, in := range m.Interfaces {
			lost, err := a.hasSuccessor(m, in)
			switch {
			case err == nil && lost:
				a.lose(m, in)
			case err == nil:
				err = a.noteBinding(m, in)
			}
			if err != nil {
				return fmt.Errorf("bind interface %s: %w", in.Name, err)
			}
		}
		m.Slot = a.slotOf(m)
		m.Rules = a.rulesOf(m)
		for _, in := range m.Interfaces {
			if m.lost[in.Ifindex] {
				continue
			}
			if err := a.o.bind(in, m.Slot); err != nil {
				return fmt.Errorf("bind interface %s: %w", in.Name, err)
			}
		}
	}
	return nil
}

// attach puts the programs on the interfaces of Bind, and on all of them when Verify is asked for.
func (a *application) attach(context.Context) error {
	for _, m := range a.members {
		if !m.bind && !a.req.Verify || m.adopting() { // these their own way, all together
			continue
		}
		if err := a.attachMember(m, attach.Sides[:]...); err != nil {
			return err
		}
	}
	return a.attachAdopted()
}

// attachMember puts programs on the interfaces of an attachment.
func (a *application) attachMember(m *member, sides ...attach.Side) error {
	for i := range m.Interfaces {
		in := &m.Interfaces[i]
		if m.lost[in.Ifindex] {
			continue
		}
		err := a.attachInterface(m, in, sides)
		if errors.Is(err, attach.ErrGone) {
			a.lose(m, *in)
			continue
		}
		if err := a.failedAt(m, err); err != nil {
			return err
		}
	}
	return nil
}

func (a *application) attachInterface(m *member, in *state.Interface, sides []attach.Side) error {
	hooks, err := a.e.hooks(*in)
	if err != nil {
		return err
	}
	defer hooks.Close()
	for _, side := range sides {
		prog := a.o.progs[side.String()]
		if m.Phase == state.PhaseEnforced {
			before, err := a.o.query(hooks, side)
			if err != nil {
				return err
			}
			if before.Attached && before.Effective {
				continue
			}
			a.mendedOn(in.Name, "%s: %s was not in force", in.Name, side)
		}
		// In mode auto an interface stays as it is attached, unless it takes another way to be in front.
		if err := hooks.Attach(side, prog, a.modeOf(m), a.e.linkPin(*in, side)); err != nil {
			return fmt.Errorf("attach %s to %s: %w", side, in.Name, err)
		}
	}
	return nil
}

// verify asks the kernel whether the interfaces of Bind, or all, are in force.
func (a *application) verify(context.Context) error {
	for _, m := range a.members {
		if m.failed || (!m.bind && !a.req.Verify) {
			continue
		}
		for i := range m.Interfaces {
			in := &m.Interfaces[i]
			if m.lost[in.Ifindex] {
				continue
			}
			mode, err := a.e.verify(a.o, *in, m.Slot)
			switch {
			case errors.Is(err, attach.ErrGone):
				a.lose(m, *in)
			case err != nil:
				if err := a.failedAt(m, fmt.Errorf("interface %s: %w", in.Name, err)); err != nil {
					return err
				}
			default:
				in.Mode = string(mode)
			}
		}
		if m.failed {
			continue
		}
		if err := a.failedAt(m, a.holdMember(m)); err != nil {
			return err
		}
	}
	return nil
}

// record notes that what was asked for is in force. What a killed writer intended becomes enforced only in
// a run that has asked the kernel about it.
func (a *application) record(context.Context) error {
	for _, m := range a.members {
		if asked := m.bind || a.req.Verify; asked && m.gone() {
			a.result.Gone = append(a.result.Gone, m.Attachment)
		} else if asked && !m.failed && len(m.lost) == 0 {
			m.Phase = state.PhaseEnforced
		}
		if !m.bind && reflect.DeepEqual(m.Attachment, m.recorded) {
			continue
		}
		if err := a.recordAttachment(m); err != nil {
			return err
		}
	}
	return a.recordIdentifier()
}

// recordIdentifier writes the identifier's record when it says something new.
func (a *application) recordIdentifier() error {
	if a.req.Default != "" || a.req.Create == nil {
		a.result.Create, a.result.Running = a.rec.Create, a.rec.Running
		return nil
	}
	a.rec.Namespace, a.rec.Labels = a.req.Namespace, a.req.Labels
	a.rec.Policies, a.rec.Pending, a.rec.Settling = a.req.Policies, a.req.Pending, a.req.Settling
	a.result.Create, a.result.Running = a.rec.Create, a.rec.Running
	if a.same() {
		return nil
	}
	a.rec.UpdatedAt = time.Now()
	return a.e.store.WriteIdentifier(a.rec)
}

// same tells whether the record says already what it would be made to say.
func (a *application) same() bool {
	if a.rec.Create.Hash != a.old.Create.Hash || a.rec.Running.Hash != a.old.Running.Hash {
		return false
	}
	was, err := json.Marshal(a.old)
	if err != nil {
		return false
	}
	now, err := json.Marshal(a.rec)
	return err == nil && bytes.Equal(was, now)
}
