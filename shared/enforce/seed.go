package enforce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// Flow is a flow that was opened before programs were attached, as the pod sees it.
type Flow struct {
	Local, Remote netip.AddrPort
	Proto         uint8
	Dir           policy.Direction // in which it was opened
	Answered      bool
}

// adopting tells whether this run adopts an attachment: its pod runs, and no packet of it was judged yet.
func (m *member) adopting() bool { return m.bind && m.Adopted && m.Phase != state.PhaseEnforced }

// modeOf is how a member's interfaces are attached. To make a clsact qdisc drops what a live interface is
// sent for a moment, so a pod that runs gets tcx at once where that is left to us and the kernel has it.
func (a *application) modeOf(m *member) attach.Mode {
	if m.adopting() && a.e.cfg.AttachMode == attach.ModeAuto && attach.HaveTCX() == nil {
		return attach.ModeTCX
	}
	return a.e.cfg.AttachMode
}

// attachAdopted attaches to pods that run, side by side. Flows that are opened between the seed step and
// now are seeded in between: what the pod sends is tracked from here on, so the seed before the second side
// knows every flow whose answers that side will judge. The last is for flows from outside that came before
// the second side was on.
func (a *application) attachAdopted() error {
	for _, side := range []attach.Side{attach.FromPod, attach.ToPod} {
		any := false
		for _, m := range a.members {
			if !m.adopting() || m.failed {
				continue
			}
			any = true
			if err := a.attachMember(m, side); err != nil {
				return err
			}
		}
		if any {
			a.seedFlows()
		}
	}
	return nil
}

// seed records the live flows of adopted attachments before programs see their packets: who opened a flow
// cannot be told from a packet in the middle. Without the flows a pod is adopted all the same: enforcement
// does not wait.
func (a *application) seed(context.Context) error {
	a.seedFlows()
	return nil
}

func (a *application) seedFlows() {
	if a.req.Seed == nil {
		return
	}
	var addrs []netip.Addr
	of := map[netip.Addr]uint32{} // pod id
	for _, m := range a.members {
		if !m.adopting() || m.failed {
			continue
		}
		for _, in := range m.Interfaces {
			if m.lost[in.Ifindex] {
				continue
			}
			for _, addr := range []netip.Addr{in.Addr4, in.Addr6} {
				if addr.IsValid() {
					addrs, of[addr] = append(addrs, addr), in.PodID
				}
			}
		}
	}
	if len(addrs) == 0 {
		return
	}
	flows, err := a.req.Seed(addrs)
	if err != nil {
		a.e.log.Warn("live flows of pods that are adopted are not known", "identifier", a.req.Identifier, "error", err)
	}
	for _, f := range flows {
		pod, ok := of[f.Local.Addr()]
		if !ok || f.Local.Addr() == f.Remote.Addr() {
			continue // the programs know by its packets what a pod sends to itself
		}
		if err := a.o.seed(pod, f, a.denies(f)); err != nil {
			a.e.log.Warn("a live flow could not be recorded", "pod", pod, "flow", f, "error", err)
		}
	}
}

// denies tells whether the rules that an adopted pod gets deny a flow.
func (a *application) denies(f Flow) bool {
	rules := a.req.Running
	if rules == nil {
		rules = a.req.Create
	}
	if rules == nil || a.req.HoldRunning {
		return false
	}
	port := f.Local.Port()
	if f.Dir == policy.Egress {
		port = f.Remote.Port()
	}
	return rules.Lookup(f.Dir, f.Remote.Addr(), policy.Protocol(f.Proto), port).Verdict == policy.Deny
}

// seed records a flow of a pod's own address. It has no generation, so that its first packet has it judged.
// What policy denies has no grace, unlike when policy changes: another agent may have denied it already, while
// connection tracking remembers it. Of flows with an address of the node the rules alone do not say what is
// denied: the programs tell by a packet whether it is the node's own.
func (o *objects) seed(pod uint32, f Flow, denied bool) error {
	if denied {
		var found uint8
		err := o.maps["node_addrs"].Lookup(bpf.NodeAddr{Addr: f.Remote.Addr().As16()}, &found)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read node address: %w", err)
		}
	}
	v := bpf.Flow{Stamp: bpf.Now(), Dir: bpf.Ingress, State: bpf.FlowNew}
	if f.Dir == policy.Egress {
		v.Dir = bpf.Egress
	}
	if f.Answered {
		v.State = bpf.FlowEstablished
	}
	if denied {
		v.Flags, v.CutAt = bpf.FlowCut, v.Stamp
	}
	lport, rport := bpf.NetPort(f.Local.Port()), bpf.NetPort(f.Remote.Port())
	if f.Remote.Addr().Is4() {
		return o.seedFlow(bpf.TableFlows4, bpf.FlowKey4{Pod: pod, Remote: bpf.Addr4(f.Remote.Addr()), Lport: lport, Rport: rport, Proto: f.Proto}, v)
	}
	return o.seedFlow(bpf.TableFlows6, bpf.FlowKey6{Pod: pod, Remote: f.Remote.Addr().As16(), Lport: lport, Rport: rport, Proto: f.Proto}, v)
}

// seedFlow leaves a flow that the programs know, unless they met it in the middle and mistook who opened it.
func (o *objects) seedFlow(t bpf.Table, key any, v bpf.Flow) error {
	flows := o.maps[t.String()]
	err := flows.Update(key, v, ebpf.UpdateNoExist)
	if err == nil {
		atomic.AddUint64(&o.ends.At(int(t)).Made, 1)
	}
	if !errors.Is(err, ebpf.ErrKeyExist) {
		return err
	}
	var known bpf.Flow
	if err := flows.Lookup(key, &known); err != nil || known.Dir == v.Dir {
		return nil
	}
	return flows.Update(key, v, ebpf.UpdateAny)
}

// inherit finds the record of an adopted pod that is now added by its runtime: an interface that is the same
// keeps its pod id, and with it its flows.
func (a *application) inherit(known, b state.Attachment) (state.Attachment, *state.Attachment) {
	if b.Adopted || b.PodUID == "" || known.Identifier != "" {
		return known, nil
	}
	adopted, err := a.e.readAttachment(state.AdoptedContainer(b.PodUID), b.IfName)
	if err != nil || !adopted.Adopted || !a.held.Covers(adopted.Identifier) {
		return known, nil // the audit ends it
	}
	known.Interfaces = adopted.Interfaces
	return known, &adopted
}

// recordAttachment writes a member's record, then deletes the adopted one that it takes the place of, if it
// has its interfaces.
func (a *application) recordAttachment(m *member) error {
	err := a.e.store.WriteAttachment(m.Attachment)
	if err != nil || m.adopted == nil || m.failed || !hasAll(m.Attachment, *m.adopted) {
		return err
	}
	return a.e.deleteRecord(*m.adopted)
}

func hasAll(later, adopted state.Attachment) bool {
	return !slices.ContainsFunc(adopted.Interfaces, func(in state.Interface) bool {
		return !slices.ContainsFunc(later.Interfaces, func(i state.Interface) bool { return i.Ifindex == in.Ifindex && i.Name == in.Name })
	})
}

func (e *Enforcer) deleteRecord(a state.Attachment) error {
	return errors.Join(e.store.RemoveMember(a.Identifier, a.ContainerID, a.IfName), e.store.DeleteAttachment(a.ContainerID, a.IfName))
}

// EndAdopted deletes the record of an adopted attachment whose interfaces one of later has, and tells
// whether it did. The interfaces, their bindings and what is attached to them are the later one's.
func (e *Enforcer) EndAdopted(ctx context.Context, a state.Attachment, later []state.Attachment) (ended bool, _ error) {
	if !a.Adopted || !slices.ContainsFunc(later, func(l state.Attachment) bool {
		return !l.Adopted && l.Phase == state.PhaseEnforced && hasAll(l, a)
	}) {
		return false, nil
	}
	return e.underLock(ctx, a, func(now state.Attachment) (bool, error) { return true, e.deleteRecord(now) })
}
