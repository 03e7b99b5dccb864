package testenv

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Veth joins two namespaces by a pair of veths that are up, and returns both ends.
func Veth(t testing.TB, host *NetNS, hostName string, pod *NetNS, podName string) (hostEnd, podEnd netlink.Link) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = hostName
	v := &netlink.Veth{LinkAttrs: attrs, PeerName: podName, PeerNamespace: netlink.NsFd(pod.FD())}
	if err := host.Netlink.LinkAdd(v); err != nil {
		t.Fatalf("add veth %s: %v", hostName, err)
	}
	pod.Up(t, podName)
	host.Up(t, hostName)
	return host.Link(t, hostName), pod.Link(t, podName)
}

// Link returns an interface of the namespace.
func (n *NetNS) Link(t testing.TB, name string) netlink.Link {
	t.Helper()
	l, err := n.Netlink.LinkByName(name)
	if err != nil {
		t.Fatalf("find interface %s: %v", name, err)
	}
	return l
}

// Up sets an interface up.
func (n *NetNS) Up(t testing.TB, name string) {
	t.Helper()
	if err := n.Netlink.LinkSetUp(n.Link(t, name)); err != nil {
		t.Fatalf("set %s up: %v", name, err)
	}
}

// DelLink deletes an interface.
func (n *NetNS) DelLink(t testing.TB, name string) {
	t.Helper()
	if err := n.Netlink.LinkDel(n.Link(t, name)); err != nil {
		t.Fatalf("delete %s: %v", name, err)
	}
}

// Addr adds addresses with prefix lengths to an interface.
func (n *NetNS) Addr(t testing.TB, name string, cidrs ...string) {
	t.Helper()
	l := n.Link(t, name)
	for _, c := range cidrs {
		a, err := netlink.ParseAddr(c)
		if err != nil {
			t.Fatal(err)
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := n.Netlink.AddrAdd(l, a); err != nil {
			t.Fatalf("add %s to %s: %v", c, name, err)
		}
	}
}

// Route adds a route: dst is a prefix or "default4", "default6"; via is a gateway, or empty for what
// is on the link.
func (n *NetNS) Route(t testing.TB, dst, via, name string) {
	t.Helper()
	r := &netlink.Route{LinkIndex: n.Link(t, name).Attrs().Index}
	switch dst {
	case "default4":
		dst = "0.0.0.0/0"
	case "default6":
		dst = "::/0"
	}
	_, prefix, err := net.ParseCIDR(dst)
	if err != nil {
		t.Fatal(err)
	}
	r.Dst = prefix
	if via == "" {
		r.Scope = netlink.SCOPE_LINK
	} else {
		r.Gw = net.ParseIP(via)
	}
	if err := n.Netlink.RouteAdd(r); err != nil {
		t.Fatalf("add route %s via %q dev %s: %v", dst, via, name, err)
	}
}

// Neigh adds a permanent neighbour.
func (n *NetNS) Neigh(t testing.TB, name, ip string, mac net.HardwareAddr) {
	t.Helper()
	err := n.Netlink.NeighSet(&netlink.Neigh{
		LinkIndex: n.Link(t, name).Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(ip), HardwareAddr: mac,
	})
	if err != nil {
		t.Fatalf("add neighbour %s on %s: %v", ip, name, err)
	}
}
