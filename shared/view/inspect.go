package view

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// A writer at work is done in milliseconds. What is still wrong after these waits is wrong.
var settleWaits = []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond}

// settle looks again and again until a look says that all is well, or has done so for long enough.
func settle(isWell func() bool) {
	for _, wait := range settleWaits {
		if isWell() {
			return
		}
		time.Sleep(wait)
	}
	isWell()
}

// Kinds of problems.
const (
	KindRecord  = "record"  // a record is missing, unreadable, or says that the work was not finished
	KindPin     = "pin"     // a pinned object is missing
	KindGone    = "gone"    // the interface is not there
	KindHook    = "hook"    // our program does not run, or another runs in front of it
	KindBinding = "binding" // pod_state is not as recorded
	KindSlot    = "slot"    // the slot is not complete, or is another's
	KindRules   = "rules"   // the kernel's rules are not the recorded ones
	KindOrphan  = "orphan"  // something in the kernel that no record knows
	KindWatcher = "watcher" // latchd
	KindForeign = "foreign" // another policy agent is in force on the node's interfaces

	KindNotAdopted = "not-adopted" // a pod runs without policy
)

// Problem is one thing that is not as it should be.
type Problem struct {
	Kind    string `json:"kind"`
	Object  string `json:"object"` // what it is about: an interface, a slot, a file
	Message string `json:"message"`
}

// String is the problem in one line.
func (p Problem) String() string {
	if p.Object == "" {
		return p.Message
	}
	return p.Object + ": " + p.Message
}

// settled inspects attachments, and those that are out of order again: without the lock a reader may come
// between two steps of a writer. They are waited for together, since a node may have hundreds of them. One
// that has been removed by then is left out.
func (n *Node) settled(atts []state.Attachment) (pods []Pod) {
	var wrong []Pod
	settle(func() bool {
		if wrong != nil {
			atts = n.readAgain(atts)
		}
		var again []state.Attachment
		wrong = nil
		for _, a := range atts {
			if p := n.inspect(a); p.Healthy {
				pods = append(pods, p)
			} else {
				wrong, again = append(wrong, p), append(again, a)
			}
		}
		atts = again
		return len(wrong) == 0
	})
	return append(pods, wrong...)
}

// readAgain reads the records of attachments as they are by now.
func (n *Node) readAgain(atts []state.Attachment) (now []state.Attachment) {
	for _, a := range atts {
		r, err := n.store.ReadAttachment(a.ContainerID, a.IfName)
		switch {
		case err == nil:
			now = append(now, r)
		case !errors.Is(err, fs.ErrNotExist):
			now = append(now, a)
		}
	}
	return now
}

// inspector compares one attachment's record with the kernel.
type inspector struct {
	*kernel
	pod *Pod
}

func (x *inspector) problem(kind, object, format string, args ...any) {
	x.pod.Problems = append(x.pod.Problems, Problem{kind, object, fmt.Sprintf(format, args...)})
}

func (n *Node) inspect(a state.Attachment) Pod {
	p := Pod{Namespace: a.PodNamespace, Name: a.PodName, UID: a.PodUID, ContainerID: a.ContainerID, IfName: a.IfName,
		Identifier: string(a.Identifier), Slot: a.Slot, Policies: []Policy{}, State: StateEnforced}
	switch a.Default {
	case state.DefaultAllow:
		p.State = StateDefaultAllow
	case state.DefaultDeny:
		p.State = StateDefaultDeny
	}
	if !a.CreatedAt.IsZero() {
		p.Since = &a.CreatedAt
	}
	x := inspector{n.kernel, &p}
	if a.Phase != state.PhaseEnforced {
		x.problem(KindRecord, "", "recorded as %q: the attachment was begun and not finished", a.Phase)
	}
	x.interfaces(n, a)
	x.slot(n, a.Identifier, a.Slot, a.Default != "")
	if p.Healthy = len(p.Problems) == 0; !p.Healthy {
		p.State = StateBroken
	}
	return p
}

func (x *inspector) interfaces(n *Node, a state.Attachment) {
	if len(a.Interfaces) == 0 {
		x.problem(KindRecord, "", "no interface is recorded")
	}
	for _, in := range a.Interfaces {
		out := Interface{Name: in.Name, Ifindex: in.Ifindex, PodID: in.PodID, Addr4: in.Addr4, Addr6: in.Addr6}
		if x.kernel == nil {
			x.problem(KindPin, in.Name, "%v", n.notPinned())
		} else if x.present(in) {
			out.ToPod, out.FromPod = x.hook(in, attach.ToPod), x.hook(in, attach.FromPod)
			x.binding(&out, in, a.Slot)
		}
		x.pod.Interfaces = append(x.pod.Interfaces, out)
	}
}

// present tells whether the interface is the one that was attached.
func (x *inspector) present(in state.Interface) bool {
	found, err := netlink.LinkByIndex(in.Ifindex)
	if err != nil {
		x.problem(KindGone, in.Name, "the interface (index %d) is not there", in.Ifindex)
		return false
	}
	if name := found.Attrs().Name; name != in.Name {
		x.problem(KindRecord, in.Name, "the interface with index %d is called %s", in.Ifindex, name)
	}
	return true
}

func (x *inspector) hook(in state.Interface, side attach.Side) Hook {
	s, err := attach.Query(in.Ifindex, side, x.progs[side])
	switch {
	case errors.Is(err, attach.ErrGone):
		x.problem(KindGone, in.Name, "the interface (index %d) is not there", in.Ifindex)
	case err != nil:
		x.problem(KindHook, in.Name, "%v", err)
	case !s.Attached && s.ProgID != 0:
		x.problem(KindHook, in.Name, "%s: program %d runs, not the pinned one, %d", side, s.ProgID, x.progs[side])
	case !s.Attached:
		x.problem(KindHook, in.Name, "%s: no program of ours runs", side)
	case !s.Effective:
		x.problem(KindHook, in.Name, "%s: %v runs in front and can let packets by", side, s.Ahead)
	}
	return Hook{Attached: s.Attached, Effective: s.Attached && s.Effective, Mode: string(s.Mode), Program: s.ProgID, Ahead: s.Ahead}
}

func (x *inspector) binding(out *Interface, in state.Interface, slot uint32) {
	bound, ok, err := x.podState(in.Ifindex)
	switch {
	case err != nil:
		x.problem(KindBinding, in.Name, "%v", err)
		return
	case !ok:
		x.problem(KindBinding, in.Name, "bound to no rules: everything is dropped")
		return
	}
	out.Bound, out.Slot = true, &bound.Slot
	out.Guarded = bound.Flags&bpf.PodAntispoof != 0
	x.pod.Slot = bound.Slot
	if bound.Pod != in.PodID {
		x.problem(KindBinding, in.Name, "bound as pod id %d, recorded as %d", bound.Pod, in.PodID)
	}
	if bound.Slot != slot {
		x.problem(KindBinding, in.Name, "bound to slot %d, recorded in slot %d", bound.Slot, slot)
	}
	if bound.Addr4 != bpf.Addr4(in.Addr4) || (in.Addr6.Is6() && bound.Addr6 != in.Addr6.As16()) {
		x.problem(KindBinding, in.Name, "bound with other addresses than recorded")
	}
	if out.Guarded != in.AntiSpoof {
		x.problem(KindBinding, in.Name, "antiSpoof is %v, recorded as %v", out.Guarded, in.AntiSpoof)
	}
}

// slot looks at the slot that the kernel judges the pod by, and compares it with the identifier's
// record.
func (x *inspector) slot(n *Node, id identity.Identifier, recorded uint32, byDefault bool) {
	if x.kernel == nil {
		return
	}
	p := x.pod
	object := fmt.Sprintf("slot %d", p.Slot)
	h, ok := x.kernel.slot(p.Slot)
	if !ok || h.Flags&bpf.SlotComplete == 0 {
		x.problem(KindSlot, object, "not complete: everything is dropped")
	}
	p.Generation = h.Generation
	var known sources
	if !byDefault {
		known = x.identifier(n, id, h, object)
	}
	p.Ingress, p.Egress = sideOf(h, policy.Ingress, known), sideOf(h, policy.Egress, known)
}

// identifier compares a slot with the record of the identifier whose it should be, and returns what
// the slot's rule ids stand for.
func (x *inspector) identifier(n *Node, id identity.Identifier, h bpf.Slot, object string) sources {
	p := x.pod
	rec, err := n.store.ReadIdentifier(id)
	if err != nil {
		x.problem(KindRecord, "", "identifier %s: %v", id, err)
		return nil
	}
	p.Policies, p.Pending, p.Settling = policiesOf(rec.Policies), policiesOf(rec.Pending), policiesOf(rec.Settling)
	if p.Slot >= bpf.FirstSlot && h.Identifier != id.Bytes() {
		x.problem(KindSlot, object, "belongs to identifier %s, not to %s", hex.EncodeToString(h.Identifier[:]), id)
		return nil
	}
	ref, ok := refOf(rec, p.Slot)
	switch {
	case !ok:
		x.problem(KindRecord, object, "not a slot of identifier %s by its record", id)
		return nil
	case h.RulesHash == [32]byte{}:
		x.problem(KindRules, object, "a change of its rules was begun and not finished")
	case hex.EncodeToString(h.RulesHash[:]) != ref.Hash:
		x.problem(KindRules, object, "holds other rules than recorded")
	}
	if !ref.Since.IsZero() && (p.Since == nil || ref.Since.After(*p.Since)) {
		p.Since = &ref.Since
	}
	return sourcesOf(ref)
}

// refOf finds the slot in an identifier's record.
func refOf(rec state.IdentifierRecord, slot uint32) (state.SlotRef, bool) {
	for _, ref := range []state.SlotRef{rec.Create, rec.Running} {
		if ref.Slot == slot && ref.Hash != "" {
			return ref, true
		}
	}
	return state.SlotRef{}, false
}

func sourcesOf(ref state.SlotRef) sources {
	s := sources{}
	for _, src := range ref.Sources {
		s[src.ID] = src
	}
	return s
}

func sideOf(h bpf.Slot, d policy.Direction, known sources) Side {
	miss := known.decision(resultOf(h.OnMiss[d]))
	return Side{Isolated: miss.Isolation, Default: miss}
}

func resultOf(v uint32) policy.Result {
	r := policy.Result{Rule: policy.RuleID(v & bpf.ResRuleMask)}
	if v&bpf.ResAllow != 0 {
		r.Verdict = policy.Allow
	}
	return r
}

// expected is a pod that is known and has no interface yet.
func (n *Node) expected(r state.PodRecord) Pod {
	p := Pod{Namespace: r.Namespace, Name: r.Name, UID: r.UID, Identifier: string(r.Identifier), Policies: []Policy{},
		State: StateExpected, Healthy: true}
	rec, err := n.store.ReadIdentifier(r.Identifier)
	if err != nil || n.kernel == nil {
		return p
	}
	h, ok := n.kernel.slot(rec.Create.Slot)
	if !ok || h.Flags&bpf.SlotComplete == 0 || hex.EncodeToString(h.RulesHash[:]) != rec.Create.Hash {
		return p
	}
	p.State, p.Slot, p.Generation, p.Since = StatePrepared, rec.Create.Slot, h.Generation, &rec.Create.Since
	p.Policies, p.Pending = policiesOf(rec.Policies), policiesOf(rec.Pending)
	p.Ingress, p.Egress = sideOf(h, policy.Ingress, sourcesOf(rec.Create)), sideOf(h, policy.Egress, sourcesOf(rec.Create))
	return p
}
