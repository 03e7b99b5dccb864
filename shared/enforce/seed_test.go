package enforce

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

func adopted(in state.Interface) state.Attachment {
	return state.Attachment{ContainerID: state.AdoptedContainer("u1"), IfName: "eth0", PodNamespace: "shop", PodName: "a", PodUID: "u1",
		Adopted: true, Interfaces: []state.Interface{in}}
}

// lookup returns the flow of a pod's IPv4 address that the kernel has.
func (g *ground) lookup(pod uint32, f Flow) (v bpf.Flow, err error) {
	key := bpf.FlowKey4{Pod: pod, Remote: bpf.Addr4(f.Remote.Addr()), Lport: bpf.NetPort(f.Local.Port()), Rport: bpf.NetPort(f.Remote.Port()), Proto: f.Proto}
	err = g.e.Map("flows4").Lookup(key, &v)
	return v, err
}

func (g *ground) recorded(pod uint32, f Flow) bpf.Flow {
	g.t.Helper()
	v, err := g.lookup(pod, f)
	if err != nil {
		g.t.Errorf("flow %+v: %v", f, err)
	}
	return v
}

// query asks the kernel what one side of the pod's interface runs.
func (g *ground) query(o *objects, side attach.Side) (attach.Status, error) {
	hooks, err := attach.Open(g.iface.Ifindex, g.iface.Name)
	if err != nil {
		return attach.Status{}, err
	}
	defer hooks.Close()
	return o.query(hooks, side)
}

// sidesOn are the sides of the pod's interface on which our program is.
func (g *ground) sidesOn() (on []attach.Side) {
	g.t.Helper()
	for _, side := range []attach.Side{attach.FromPod, attach.ToPod} {
		s, err := g.query(g.e.objects, side)
		if err != nil {
			g.t.Error(err)
		}
		if s.Attached {
			on = append(on, side)
		}
	}
	return on
}

// An adopted pod gets the rules for running pods. Its flows are there before a program sees their packets;
// what was opened meanwhile follows before the other side judges answers, and at the end.
func TestAdoptedIsSeededAndRuns(t *testing.T) {
	g := newGround(t)
	end := func(addr string, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(addr), port)
	}
	flow := func(lport uint16, d policy.Direction, answered bool) Flow {
		return Flow{Local: end(podAddr, lport), Remote: end("203.0.113.9", 443), Proto: unix.IPPROTO_TCP, Dir: d, Answered: answered}
	}
	before, between, last := flow(41000, policy.Egress, true), flow(41001, policy.Ingress, false), flow(41002, policy.Egress, false)
	var asked [][]attach.Side
	req := Request{Identifier: idA, Create: allowPorts(openPort), Running: openRules(), Bind: []state.Attachment{adopted(g.iface)}, Verify: true,
		Seed: func(addrs []netip.Addr) ([]Flow, error) {
			asked = append(asked, g.sidesOn())
			if want := []netip.Addr{netip.MustParseAddr(podAddr)}; !slices.Equal(addrs, want) {
				t.Errorf("asked for flows of %v", addrs)
			}
			elses := Flow{Local: end("10.0.1.99", 1), Remote: before.Remote, Proto: unix.IPPROTO_TCP}
			return []Flow{elses, before, between, last}[:min(4, 1+len(asked))], nil
		}}
	r := g.apply(req)
	if r.Create.Slot == r.Running.Slot {
		t.Fatalf("one slot for both: %+v", r)
	}
	want := [][]attach.Side{nil, {attach.FromPod}, {attach.FromPod, attach.ToPod}}
	if !slices.EqualFunc(asked, want, slices.Equal) {
		t.Errorf("asked for flows with programs on %v, want %v", asked, want)
	}
	rec, err := g.e.store.ReadAttachment(state.AdoptedContainer("u1"), "eth0")
	if err != nil || rec.Slot != r.Running.Slot || rec.Phase != state.PhaseEnforced {
		t.Errorf("record %+v, %v", rec, err)
	}
	for _, f := range []Flow{before, between, last} {
		v := g.recorded(rec.Interfaces[0].PodID, f)
		if v.State == bpf.FlowEstablished != f.Answered || v.Dir == bpf.Egress != (f.Dir == policy.Egress) || v.Generation != 0 || v.Flags != 0 {
			t.Errorf("flow %+v is recorded as %+v", f, v)
		}
	}
	if g.apply(req); len(asked) != 3 {
		t.Errorf("asked for flows %d times", len(asked))
	}
	g.wantVerdicts("adopted", true, true)
}

// A pod that runs must not lose packets to the making of a qdisc, if the way to attach is left to us.
func TestAdoptedIsAttachedByTCX(t *testing.T) {
	for _, mode := range []attach.Mode{attach.ModeAuto, attach.ModeClsact} {
		g := newGround(t)
		g.cfg.AttachMode = mode
		g.open()
		want := attach.ModeClsact
		if mode == attach.ModeAuto && attach.HaveTCX() == nil {
			want = attach.ModeTCX
		}
		g.apply(Request{Identifier: idA, Create: openRules(), Bind: []state.Attachment{adopted(g.iface)}})
		rec, err := g.e.store.ReadAttachment(state.AdoptedContainer("u1"), "eth0")
		if err != nil || attach.Mode(rec.Interfaces[0].Mode) != want {
			t.Errorf("mode %s: record %+v (%v), want %s", mode, rec, err, want)
		}
	}
}

// What policy denies ends with the adoption: another agent may have denied it already. It has no grace. A flow
// that the programs have met in the middle, and mistaken, is set right.
func TestAdoptedFlowsThatAreDenied(t *testing.T) {
	g := newGround(t)
	remote := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.9"), 443)
	own := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(podAddr), port) }
	denied := Flow{Local: own(41000), Remote: remote, Proto: unix.IPPROTO_UDP, Dir: policy.Egress, Answered: true}
	allowed := Flow{Local: own(41001), Remote: netip.AddrPortFrom(remote.Addr(), openPort), Proto: unix.IPPROTO_UDP, Dir: policy.Egress}
	into := Flow{Local: own(shutPort), Remote: remote, Proto: unix.IPPROTO_UDP, Dir: policy.Ingress}
	turned := into
	turned.Dir = policy.Egress
	ofNode := denied // nobody can say whose
	ofNode.Remote = netip.AddrPortFrom(netip.MustParseAddr("203.0.113.10"), 443)
	g.do(func() error { return g.e.SetNode(ctx, NodeConfig{Addrs: []netip.Addr{ofNode.Remote.Addr()}}) })
	asked := 0
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{adopted(g.iface)},
		Seed: func([]netip.Addr) ([]Flow, error) {
			if asked++; asked == 1 {
				return []Flow{denied, ofNode, allowed, turned}, nil
			}
			return []Flow{denied, allowed, into}, nil
		}})
	rec, err := g.e.store.ReadAttachment(state.AdoptedContainer("u1"), "eth0")
	if err != nil {
		t.Fatal(err)
	}
	pod := rec.Interfaces[0].PodID
	if v, err := g.lookup(pod, ofNode); err == nil {
		t.Errorf("denied flow with an address of the node: %+v", v)
	}
	if v := g.recorded(pod, denied); v.Flags != bpf.FlowCut || v.CutAt != v.Stamp {
		t.Errorf("denied flow %+v", v)
	}
	if v := g.recorded(pod, allowed); v.Flags != 0 {
		t.Errorf("allowed flow %+v", v)
	}
	if v := g.recorded(pod, into); v.Dir != bpf.Ingress || v.Flags != 0 {
		t.Errorf("flow from outside %+v", v)
	}
}
