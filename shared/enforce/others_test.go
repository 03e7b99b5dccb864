package enforce

import (
	"context"
	"errors"
	"fmt"
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
	g.renameHost("lt1")
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

// An index that was a pod's is that of an interface which is no business of ours, and no DEL has ended the
// pod's attachment.
func TestStaleRecordLeavesInterfacesOfOthersAlone(t *testing.T) {
	inEachMode(t, func(t *testing.T, g *ground) {
		req := Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}}
		g.apply(req)
		g.replaceHost("other0")
		wantFree := func(what string) {
			t.Helper()
			g.do(func() error {
				for _, side := range attach.Sides {
					if found, err := attach.Occupied(g.iface.Ifindex, side); err != nil || len(found) > 0 {
						t.Errorf("%s: %s of other0 has %v, %v", what, side, found, err)
					}
				}
				return nil
			})
		}
		g.wantGone(true)
		r := g.apply(Request{Identifier: idA, Create: req.Create, Verify: true})
		wantFree("verified")
		if len(r.Gone) != 1 || len(r.Repaired) > 0 {
			t.Errorf("verified: gone %v, repaired %v", r.Gone, r.Repaired)
		}
		g.do(func() error {
			if err := g.e.Check(ctx, "c1", "eth0"); !errors.Is(err, attach.ErrGone) {
				t.Errorf("checked: %v", err)
			}
			if done, err := g.e.Promote(ctx, "c1", "eth0"); done || g.e.cfg.AttachMode == attach.ModeClsact && !errors.Is(err, attach.ErrGone) {
				t.Errorf("promoted: %v, %v", done, err)
			}
			return nil
		})
		wantFree("promoted")
		for _, end := range []func(context.Context, string, string) error{g.e.Remove, g.e.Detach} {
			g.do(func() error {
				if _, err := g.tryApply(req); !errors.Is(err, attach.ErrGone) { // its record again
					t.Errorf("applied again: %v", err)
				}
				return end(ctx, "c1", "eth0")
			})
			wantFree("removed")
		}
		if links, err := g.e.pins.Links(); err != nil || len(links) > 0 {
			t.Errorf("links %v are left, %v", links, err)
		}
	})
}

// replaceHost ends the pod's interface and gives its index to another one.
func (g *ground) replaceHost(name string) {
	g.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index = name, g.iface.Ifindex
	err := errors.Join(g.node.Netlink.LinkDel(g.node.Link(g.t, g.iface.Name)), g.node.Netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "p"}))
	if err != nil {
		g.t.Fatal(err)
	}
}

// An attachment that is moved to another identifier must not take the binding either; what else the run is
// for gets done.
func TestMovedAttachmentLeavesTheNextOwnerOfTheIndexAlone(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: openRules(), Bind: []state.Attachment{attachment(g.iface)}})
	g.renameHost("lt1")
	next := attachment(g.iface)
	next.ContainerID, next.Interfaces[0].Name = "c2", "lt1"
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{next}})
	stale, err := g.e.Store().ReadAttachment("c1", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{attach.ErrGone, nil} { // then it is one of B's, and nobody asks for it
		req := Request{Identifier: idB, Create: allowPorts(shutPort)}
		if want != nil {
			req.Bind = []state.Attachment{stale}
		}
		g.do(func() error {
			if _, err := g.tryApply(req); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			return g.e.Check(ctx, "c2", "eth0")
		})
		g.wantVerdicts("successor", true, false)
	}
}

// A pod with two interfaces has lost one. The other is looked after as ever.
func TestOneOfTwoInterfacesIsLost(t *testing.T) {
	for _, later := range []bool{false, true} {
		t.Run(fmt.Sprintf("index used by a later pod %v", later), func(t *testing.T) {
			g := newGround(t)
			host, _ := testenv.Veth(t, g.node, "lt1", testenv.New(t), "eth1")
			first := g.iface
			second := state.Interface{Ifindex: host.Attrs().Index, Name: "lt1"}
			a := attachment(first)
			a.Interfaces = append(a.Interfaces, second)
			g.apply(Request{Identifier: idA, Create: openRules(), Bind: []state.Attachment{a}})
			g.iface = second
			if later {
				g.replaceHost("lt9")
				b := attachment(state.Interface{Ifindex: second.Ifindex, Name: "lt9"})
				b.ContainerID = "c2"
				g.apply(Request{Identifier: idB, Create: openRules(), Bind: []state.Attachment{b}})
			} else if err := g.node.Netlink.LinkDel(host); err != nil {
				t.Fatal(err)
			}
			rules := allowPorts(openPort)
			for range 2 {
				g.do(func() error { return attach.Detach(first.Ifindex, attach.FromPod, "") }) // by another agent
				r := g.apply(Request{Identifier: idA, Create: rules, Verify: true})
				if len(r.Repaired) != 1 || len(r.Gone) > 0 {
					t.Errorf("repaired %v, gone %v", r.Repaired, r.Gone)
				}
				now, err := g.e.Store().ReadAttachment("c1", "eth0")
				if err != nil || now.Slot != r.Create.Slot {
					t.Errorf("recorded in slot %d, %v, bound to %d", now.Slot, err, r.Create.Slot)
				}
				rules = manyPeers(3000) // in another slot
			}
			g.wantVerdicts("mended", false, false)
			if later {
				g.do(func() error { return g.e.Check(ctx, "c2", "eth0") })
			}
		})
	}
}

// A pod whose interface is renamed stays under policy, and closed when it is removed.
func TestRenamedInterfaceIsNeverOpen(t *testing.T) {
	inEachMode(t, func(t *testing.T, g *ground) {
		g.apply(Request{Identifier: idA, Create: openRules(), Bind: []state.Attachment{attachment(g.iface)}})
		g.renameHost("lt1")
		for _, verify := range []bool{false, true} {
			r := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: verify})
			g.wantVerdicts("policy has changed", true, false)
			if len(r.Gone) > 0 || len(r.Repaired) > 0 {
				t.Errorf("verified %v: gone %v, repaired %v", verify, r.Gone, r.Repaired)
			}
			g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
			g.wantGone(false)
			g.apply(Request{Identifier: idA, Create: manyPeers(3000), Verify: verify}) // in another slot
			g.wantVerdicts("policy has changed much", false, false)
		}
		g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
		g.wantVerdicts("removed", false, false)
	})
}

// inEachMode runs a test on a ground of its own for each way of attaching.
func inEachMode(t *testing.T, test func(*testing.T, *ground)) {
	for _, mode := range []attach.Mode{attach.ModeClsact, attach.ModeTCX} {
		t.Run(string(mode), func(t *testing.T) {
			if mode == attach.ModeTCX {
				testenv.RequireKernel(t, testenv.TCXVersion, attach.HaveTCX())
			}
			g := newGround(t)
			g.e.cfg.AttachMode = mode
			test(t, g)
		})
	}
}

// wantGone requires that the attachment's interface is found to be no more, or to be there.
func (g *ground) wantGone(want bool) {
	g.t.Helper()
	g.do(func() error {
		a, err := g.e.store.ReadAttachment("c1", "eth0")
		if got := g.e.Gone(a); err == nil && got != want {
			g.t.Errorf("interface is gone: %v, want %v", got, want)
		}
		return err
	})
}

func (g *ground) renameHost(name string) {
	g.t.Helper()
	g.do(func() error {
		link := g.node.Link(g.t, g.iface.Name)
		return errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, name), netlink.LinkSetUp(link)) // up, older kernels refuse a name
	})
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
