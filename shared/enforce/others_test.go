package enforce

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// A plugin that makes the veth inside the sandbox gets the same index every time. A record that outlived
// its interface must not take the binding of the pod that got the index since.
func TestStaleRecordLeavesTheNextOwnerOfTheIndexAlone(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: openRules(), Bind: []state.Attachment{attachment(g.iface)}})
	g.do(func() error {
		lt0 := g.node.Link(t, "lt0")
		return errors.Join(netlink.LinkSetDown(lt0), netlink.LinkSetName(lt0, "lt1"), netlink.LinkSetUp(lt0)) // up, older kernels refuse a name
	})
	next := g.iface
	next.Name = "lt1"
	b := attachment(next)
	b.ContainerID, b.PodName = "c2", "b"
	g.apply(Request{Identifier: idB, Create: allowPorts(openPort), Bind: []state.Attachment{b}})
	g.wantVerdicts("successor under B", true, false)
	for _, verify := range []bool{false, true} {
		g.apply(Request{Identifier: idA, Create: openRules(), Verify: verify})
		g.wantVerdicts("after a run for A", true, false)
	}
	g.do(func() error { return g.e.Check(ctx, "c2", "eth0") })
	g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
	g.wantVerdicts("after the late DEL of c1", true, false)
	g.do(func() error { return g.e.Check(ctx, "c2", "eth0") })
}

// One interface that cannot be mended must not keep the others of its identifier from being mended, nor
// the identifier's record from being written.
func TestVerifyGoesOnAfterAnInterfaceThatFails(t *testing.T) {
	g := newGround(t)
	g.e.cfg.AttachMode = attach.ModeClsact
	var all []state.Attachment
	for _, name := range []string{"la0", "lb0", "lc0"} {
		host, _ := testenv.Veth(t, g.node, name, testenv.New(t), "eth0")
		all = append(all, state.Attachment{ContainerID: name, IfName: "eth0", PodNamespace: "shop", PodName: name,
			Interfaces: []state.Interface{{Ifindex: host.Attrs().Index, Name: name}}})
	}
	g.apply(Request{Identifier: idA, Create: openRules(), Bind: all})
	g.do(func() error {
		for i, a := range all {
			index := a.Interfaces[0].Ifindex
			attrs := netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
			if err := netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "clsact"}); err != nil {
				return err
			}
			if attrs.Parent = netlink.HANDLE_INGRESS; i == 1 { // takes the place of clsact
				if err := netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: attrs}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	g.do(func() error {
		if _, err := g.tryApply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true}); err == nil {
			t.Error("an interface that is not in force was not reported")
		}
		return nil
	})
	g.do(func() error { return g.e.Check(ctx, "la0", "eth0") })
	g.do(func() error { return g.e.Check(ctx, "lc0", "eth0") })
	g.do(func() error {
		if err := g.e.Check(ctx, "lb0", "eth0"); err == nil {
			t.Error("an interface that is not in force passes the check")
		}
		return nil
	})
}
