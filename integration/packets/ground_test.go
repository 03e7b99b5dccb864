package packets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// ground is a node with Latch in force.
type ground struct {
	*testenv.GroundT0
	t    *testing.T
	o    options
	e    *enforce.Enforcer
	ext  *end
	log  bytes.Buffer
	node enforce.NodeConfig
}

type options struct {
	mute   bool // ends own none of their addresses, except the next hop
	bridge bool // the node joins pods and outside by a bridge, which looks at no packet
	strict bool
	deny   bool // an Admin policy denies everything
	both   bool // the test depends on how the programs are attached
	node   func(*enforce.NodeConfig)
}

func newGround(t *testing.T, o options) *ground {
	t.Helper()
	testenv.RequireRoot(t)
	if bothModes && !o.both {
		testenv.Repeated(t, "does not depend on how programs are attached")
	}
	g := &ground{GroundT0: testenv.Ground(t), t: t, o: o}
	g.Ext.Addr(t, "eth0", v6.other+"/128")
	host, next := g.Node.Link(t, "eth0").Attrs().HardwareAddr, g.Ext.Link(t, "eth0").Attrs().HardwareAddr
	g.Node.Neigh(t, "eth0", v4.router, next)
	g.Node.Neigh(t, "eth0", v6.router, next)
	g.Ext.Neigh(t, "eth0", v4.node, host)
	g.Ext.Neigh(t, "eth0", v6.node, host)
	if o.mute {
		g.silence(g.Ext, "eth0", v4.web, v4.other, v6.web, v6.other)
		g.swallow(g.Ext)
	}
	if o.bridge {
		g.bridge()
	}
	g.ext = g.newEnd("outside", g.Ext, "eth0", host)

	g.node = enforce.NodeConfig{Addrs: []netip.Addr{addr(v4.node), addr(v6.node)}, Timeouts: bpf.DefaultTimeouts()}
	if o.node != nil {
		o.node(&g.node)
	}
	g.do(func() (err error) {
		g.e, err = enforce.Open(context.Background(), enforce.Config{
			Bpffs: testenv.BPFFS(t), StateDir: testenv.StateDir(t), AttachMode: attachMode, LockTimeout: 5 * time.Second,
			Sizes: bpf.Sizes{Flows4: 16384, Flows6: 16384}, Log: slog.New(slog.NewTextHandler(&g.log, nil)),
		})
		if err != nil {
			return err
		}
		return g.e.SetNode(context.Background(), g.node)
	})
	t.Cleanup(func() {
		if t.Failed() && g.log.Len() > 0 {
			t.Logf("log:\n%s", g.log.String())
		}
		_ = g.e.Close()
	})
	return g
}

// bridge makes the node a bridge that hands on every frame as it is.
func (g *ground) bridge() {
	g.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br0"
	off := false
	if err := g.Node.Netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &off}); err != nil {
		g.t.Fatalf("add bridge: %v", err)
	}
	for _, key := range []string{"iptables", "ip6tables", "arptables"} {
		if path := "/proc/sys/net/bridge/bridge-nf-call-" + key; exists(path) {
			g.Node.Sysctl(g.t, "net.bridge.bridge-nf-call-"+key, "0")
		}
	}
	g.Node.Up(g.t, "br0")
	g.join("eth0", "br0")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// join makes an interface of the node a port of a bridge.
func (g *ground) join(dev, bridge string) {
	g.t.Helper()
	if err := g.Node.Netlink.LinkSetMaster(g.Node.Link(g.t, dev), g.Node.Link(g.t, bridge)); err != nil {
		g.t.Fatalf("make %s a port: %v", dev, err)
	}
}

func (g *ground) do(f func() error) {
	g.t.Helper()
	g.Node.MustDo(g.t, f)
}

// silence takes addresses off an interface: whatever comes for them is dropped there without a word.
func (g *ground) silence(ns *testenv.NetNS, dev string, addrs ...string) {
	g.t.Helper()
	for _, a := range addrs {
		address := &netlink.Addr{IPNet: netlink.NewIPNet(addr(a).AsSlice())}
		if err := ns.Netlink.AddrDel(ns.Link(g.t, dev), address); err != nil {
			g.t.Fatalf("delete %s from %s: %v", a, dev, err)
		}
	}
}

// swallow drops what is for nobody without a word in IPv6, too, where Linux says "no route" also as a host. An
// error that quotes a later fragment belongs to no flow: its denial would be taken for that of another packet.
func (g *ground) swallow(ns *testenv.NetNS) {
	g.t.Helper()
	all := &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	if err := ns.Netlink.RouteAdd(&netlink.Route{Type: unix.RTN_BLACKHOLE, Dst: all}); err != nil {
		g.t.Fatalf("add route that swallows: %v", err)
	}
}

// pod is a sandbox under enforcement.
type pod struct {
	*testenv.Pod
	*end
	g          *ground
	identifier identity.Identifier
	attachment state.Attachment
}

// pod makes a pod and puts it under its policy. isolates is I, E, IE, or empty: no policy selects the
// pod. For rules see parseRule.
func (g *ground) pod(spec testenv.PodSpec, isolates string, rules ...string) *pod {
	g.t.Helper()
	p := g.sandbox(g.Pod(g.t, spec))
	p.set(isolates, rules...)
	return p
}

// sandbox is a pod that Latch has not heard of yet.
func (g *ground) sandbox(tp *testenv.Pod) *pod {
	g.t.Helper()
	p := &pod{Pod: tp, g: g, identifier: identity.Of(tp.Spec.Namespace, tp.Spec.Labels)}
	for _, a := range []netip.Addr{tp.Addr4, tp.Addr6} {
		if !a.IsValid() {
			continue
		}
		g.Node.Neigh(g.t, tp.HostName, a.String(), tp.MAC)
		if g.o.mute {
			g.silence(tp.NetNS, tp.IfName, a.String())
		}
	}
	p.end = g.newEnd(tp.Spec.Name, tp.NetNS, tp.IfName, tp.HostMAC)
	if g.o.bridge {
		g.join(tp.HostName, "br0")
		p.via, g.ext.via = g.ext.mac, p.mac
	}
	p.attachment = state.Attachment{ContainerID: tp.Spec.Name, IfName: tp.IfName, PodNamespace: tp.Spec.Namespace, PodName: tp.Spec.Name,
		Interfaces: []state.Interface{{Ifindex: tp.HostIfindex, Name: tp.HostName, Addr4: tp.Addr4, Addr6: tp.Addr6}}}
	return p
}

// set puts another policy in force.
func (p *pod) set(isolates string, rules ...string) {
	p.g.t.Helper()
	input := p.g.input(isolates, rules)
	p.g.apply(enforce.Request{Identifier: p.identifier, Namespace: p.Spec.Namespace, Labels: p.Spec.Labels,
		Create: policy.Compile(input), Bind: []state.Attachment{p.attachment}})
}

// apply applies a request under the lock of its identifier.
func (g *ground) apply(req enforce.Request) {
	g.t.Helper()
	ctx := context.Background()
	g.do(func() error {
		held, err := g.e.Lock(ctx, req.Identifier)
		if err != nil {
			return err
		}
		_, err = g.e.Apply(ctx, held, req)
		if err := errors.Join(err, held.Release()); err != nil {
			return err
		}
		if err := g.e.Check(ctx, req.Bind[0].ContainerID, req.Bind[0].IfName); err != nil {
			return fmt.Errorf("check: %w", err)
		}
		return nil
	})
}
