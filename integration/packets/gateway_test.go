package packets

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/testenv"
)

// Linux solicits a neighbour from the source of the packet that waits for it, if the interface has that
// address, as those have that the plugins ptp and bridge make: the pod's answer then goes to a global
// address, and its probes of the gateway do, too.
func TestGatewayWithGlobalAddress(t *testing.T) {
	for _, bridged := range []bool{false, true} {
		for _, isolates := range []string{"", "I", "E"} {
			t.Run(fmt.Sprintf("bridged %v, isolates %s", bridged, isolates), func(t *testing.T) {
				g := newGround(t, options{both: true})
				spec := testenv.PodB
				spec.Addr4 = ""
				b := g.sandbox(g.Pod(t, spec))
				b.attachment.Interfaces[0].AntiSpoof = true
				b.set(isolates)
				b.ListenTCP(t, at(v6.b, 8080))
				gateway, dev, mac := "fd00:10:77::1", b.HostName, b.HostMAC
				if bridged {
					gateway, dev, mac = bridgeAddr, bridgeName, bridgeMAC
					g.routedBridge(b)
					b.NetNS.Neigh(t, b.IfName, "fe80::1", mac)
				} else {
					g.Node.Addr(t, dev, "fe80::1/64", gateway+"/128")
				}
				b.NetNS.Route(t, gateway+"/128", "", b.IfName)
				for _, local := range []string{gateway, v6.node} {
					g.forget(g.Node, dev)
					g.forget(b.NetNS, b.IfName)
					if err := ask(g.Node, at(local, 0), at(v6.b, 8080)); err != nil {
						t.Errorf("node (%s) > B: %v, dropped %q", local, err, newDrops(nil, g.drops()))
					}
				}
				g.probe(b, gateway, mac)
			})
		}
	}
}

// probe requires that the pod finds a neighbour again that it has not heard of for a while.
func (g *ground) probe(p *pod, neighbour string, mac net.HardwareAddr) {
	g.t.Helper()
	n := netlink.Neigh{LinkIndex: p.Ifindex, Family: netlink.FAMILY_V6, State: netlink.NUD_PROBE, IP: net.ParseIP(neighbour), HardwareAddr: mac}
	if err := p.NetNS.Netlink.NeighSet(&n); err != nil {
		g.t.Fatal(err)
	}
	testenv.Eventually(g.t, 5*time.Second, func() error {
		neighbours, err := p.NetNS.Netlink.NeighList(p.Ifindex, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		for _, n := range neighbours {
			if n.IP.String() == neighbour && n.State == netlink.NUD_REACHABLE {
				return nil
			}
		}
		return fmt.Errorf("%s is not reachable, dropped %q", neighbour, newDrops(nil, g.drops()))
	})
}

// What looks like discovery, and the node would send on if no program was there, does not get an isolated
// pod anything out: neither to other pods nor off the node.
func TestDiscoveryIsNoWayOut(t *testing.T) {
	for _, bridged := range []bool{false, true} {
		t.Run(fmt.Sprintf("bridged %v", bridged), func(t *testing.T) {
			g := newGround(t, options{both: true, mute: true})
			a, b, c := g.sandbox(g.Pod(t, testenv.PodA)), g.sandbox(g.Pod(t, testenv.PodB)), g.sandbox(g.Pod(t, testenv.PodC))
			steps := []struct{ isolates, beyond, near string }{{"", "allow", "lost"}, {"E", "deny policy", "deny policy"}}
			if bridged {
				g.routedBridge(a, b)
				g.Node.Neigh(t, bridgeName, v6.b, b.mac)
				steps[0].near, steps[1].near = "allow", "allow"
			}
			gateway := a.via
			for _, s := range steps {
				a.set(s.isolates)
				a.via = gateway
				for _, kind := range []uint8{135, 136} {
					msg := func(src, dst string) []byte { return shot{family: v6, src: src, dst: dst}.discovery(kind, 255) }
					g.want(s.beyond, "out", a.end, g.ext, msg(v6.a, v6.web))
					g.want(s.beyond, "out, from another's address", a.end, g.ext, msg(v6.c, v6.web))
					g.want(s.beyond, "to a pod", a.end, c.end, msg(v6.a, v6.c))
				}
				a.via = b.mac
				g.want(s.near, "to a pod's hardware address", a.end, b.end, shot{family: v6, src: v6.a, dst: v6.b}.discovery(136, 255))
			}
		})
	}
}

// What the node has no route to is not sent on either when rules of the node mark it, and so find one.
func TestDiscoveryIsNoWayOutByMark(t *testing.T) {
	g := newGround(t, options{both: true, mute: true})
	g.nft(g.Node, `table ip6 t { chain c { type filter hook prerouting priority raw; meta l4proto icmpv6 mark set 7; }; }`)
	all := &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	rule := netlink.NewRule()
	rule.Family, rule.Mark, rule.Table, rule.Priority = netlink.FAMILY_V6, 7, 77, 100
	for _, err := range []error{
		g.Node.Netlink.RouteAdd(&netlink.Route{LinkIndex: g.Node.Link(t, "eth0").Attrs().Index, Dst: all, Gw: net.ParseIP(v6.router), Table: 77}),
		g.Node.Netlink.RuleAdd(rule),
		g.Node.Netlink.RouteDel(&netlink.Route{Dst: all}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	a := g.pod(testenv.PodA, "")
	g.want("allow", "control: echo", a.end, g.ext, testenv.Ping(v6.a, v6.web, false, 1, 1))
	a.set("E")
	g.want("lost", "advertisement", a.end, g.ext, shot{family: v6, src: v6.a, dst: v6.web}.discovery(136, 255))
}

const (
	bridgeName = "br1"
	bridgeAddr = "fd00:10:1::1"
)

var bridgeMAC = net.HardwareAddr{2, 0, 0, 0, 0, 0x77}

// routedBridge puts pods on a bridge that is their gateway, as the plugin bridge does.
func (g *ground) routedBridge(pods ...*pod) {
	g.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = bridgeName, bridgeMAC
	if err := g.Node.Netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		g.t.Fatalf("add bridge: %v", err)
	}
	g.Node.Up(g.t, bridgeName)
	g.Node.Addr(g.t, bridgeName, "fe80::1/64", bridgeAddr+"/64")
	for _, p := range pods {
		own := &net.IPNet{IP: p.Addr6.AsSlice(), Mask: net.CIDRMask(128, 128)}
		if err := g.Node.Netlink.RouteDel(&netlink.Route{LinkIndex: p.HostIfindex, Dst: own, Protocol: unix.RTPROT_BOOT}); err != nil {
			g.t.Fatalf("delete route to %s: %v", p.Addr6, err)
		}
		g.join(p.HostName, bridgeName)
		p.via = bridgeMAC
	}
}
