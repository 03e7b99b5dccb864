package adopt

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// moveRoute puts the route to a pod into another table than main.
func moveRoute(dst string, table, ifindex int) error {
	to, err := netlink.ParseIPNet(dst)
	if err != nil {
		return err
	}
	err = netlink.RouteDel(&netlink.Route{Dst: to, Table: unix.RT_TABLE_MAIN, Scope: netlink.SCOPE_LINK})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{Dst: to, Table: table, LinkIndex: ifindex, Scope: netlink.SCOPE_LINK})
}

// enslave makes a device a port of a new bridge.
func enslave(device, bridge string) error {
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge}}
	if err := netlink.LinkAdd(br); err != nil {
		return err
	}
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return netlink.LinkSetMaster(link, br)
}

func TestInterfaces(t *testing.T) {
	testenv.RequireRoot(t)
	g := testenv.Ground(t)
	sandboxes := func(want bool) {
		t.Helper()
		g.Node.MustDo(t, func() error {
			if got, err := Sandboxes(); err != nil || got != want {
				t.Errorf("sandboxes: %v (%v), want %v", got, err, want)
			}
			return nil
		})
	}
	sandboxes(false) // though the node's own interface is a veth, too
	p := g.Pod(t, testenv.PodA)
	sandboxes(true)
	second := g.Pod(t, testenv.PodSpec{Namespace: "t1", Name: "second", Addr4: "10.0.1.21"})
	g.Node.MustDo(t, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "here0"}, PeerName: "here1"})
	})
	for addr, name := range map[string]string{"10.0.1.31": "lo", "10.0.1.32": "here0"} {
		g.Node.Up(t, name)
		g.Node.Up(t, "here1")
		g.Node.Route(t, addr+"/32", "", name)
	}
	g.Node.Route(t, "10.0.1.33/32", testenv.ExtAddr4, "eth0")
	// As the VPC CNI does for a pod with an interface of its own at the VPC: routed by rules of interfaces.
	routed := g.Pod(t, testenv.PodSpec{Namespace: "t1", Name: "routed", Addr4: "10.0.1.22"})
	torn := g.Pod(t, testenv.PodSpec{Namespace: "t1", Name: "torn", Addr4: "10.0.1.23"})
	g.Node.MustDo(t, func() error {
		return errors.Join(moveRoute("10.0.1.22/32", 101, routed.HostIfindex),
			moveRoute("10.0.1.23/32", 102, torn.HostIfindex), moveRoute("10.0.1.23/32", 103, p.HostIfindex))
	})
	// As for IPv4 of a pod in an IPv6 cluster, and as of another network.
	six := g.Pod(t, testenv.PodSpec{Namespace: "t1", Name: "six", Addr6: "fd00:10:1::24"})
	egress, _ := testenv.Veth(t, g.Node, "egress0", six.NetNS, "v4if0")
	testenv.Veth(t, g.Node, "bridged0", six.NetNS, "net1")
	g.Node.Up(t, "egress0")
	g.Node.Route(t, "169.254.172.2/32", "", "egress0")
	g.Node.MustDo(t, func() error { return enslave("bridged0", "br0") })
	both := state.Interface{Ifindex: p.HostIfindex, Name: p.HostName, Addr4: p.Addr4, Addr6: p.Addr6}
	for _, c := range []struct {
		name  string
		addrs []string
		want  []state.Interface
		err   string
	}{
		{"both families on one interface", []string{"10.0.1.11", "fd00:10:1::11"}, []state.Interface{both}, ""},
		{"an interface for each address", []string{"10.0.1.21", "fd00:10:1::11"}, []state.Interface{
			{Ifindex: second.HostIfindex, Name: second.HostName, Addr4: second.Addr4},
			{Ifindex: p.HostIfindex, Name: p.HostName, Addr6: p.Addr6}}, ""},
		{"by rules", []string{"10.0.1.22"}, []state.Interface{{Ifindex: routed.HostIfindex, Name: routed.HostName, Addr4: routed.Addr4}}, ""},
		{"an interface of the other family, too", []string{"fd00:10:1::24"}, []state.Interface{
			{Ifindex: six.HostIfindex, Name: six.HostName, Addr6: six.Addr6},
			{Ifindex: egress.Attrs().Index, Name: "egress0", Addr4: netip.MustParseAddr("169.254.172.2")}}, ""},
		{"by rules, to several", []string{"10.0.1.23"}, nil, "several interfaces"},
		{"no address", nil, nil, "no address"},
		{"only the default route", []string{"10.0.1.99"}, nil, "10.0.1.99 alone"},
		{"one of two addresses has no route of its own", []string{"10.0.1.11", "fd00:10:1::99"}, nil, "fd00:10:1::99 alone"},
		{"the node's own address", []string{testenv.NodeAddr4}, nil, "no route leads to an interface of " + testenv.NodeAddr4},
		{"no veth", []string{"10.0.1.31"}, nil, "no veth"},
		{"both ends on the node", []string{"10.0.1.32"}, nil, "not in a sandbox"},
		{"behind a gateway", []string{"10.0.1.33"}, nil, "no route leads to an interface"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var addrs []netip.Addr
			for _, a := range c.addrs {
				addrs = append(addrs, netip.MustParseAddr(a))
			}
			var got []state.Interface
			var err error
			g.Node.MustDo(t, func() error { got, err = Interfaces(addrs); return nil })
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
