package harness

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
)

// Network is a namespace outside the node, joined to it by one link. Each side routes everything
// else over the first address of the other, per family.
type Network struct {
	Name      string         // of the namespace
	NodeIf    string         // the node's end, for example eth0
	NodeAddrs []netip.Prefix // of the node's end
	Addrs     []netip.Prefix // of the far end
}

// Join makes a network and joins it to the node. Stop removes it.
func (n *Node) Join(net Network) (*NetNS, error) {
	far, err := NewNetNS(n.netnsDir(), net.Name)
	if err != nil {
		return nil, err
	}
	n.joined = append(n.joined, joined{far, net.NodeIf})
	if err := n.link(far, net); err != nil {
		return nil, fmt.Errorf("join network %s: %w", net.Name, err)
	}
	return far, nil
}

type joined struct {
	ns     *NetNS
	nodeIf string
}

func (n *Node) link(far *NetNS, net Network) error {
	err := far.Do(func() error { return errors.Join(sysctl(quietIPv6), setUpLoopback()) })
	if err != nil {
		return err
	}
	f, err := os.Open(far.Path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	err = n.NS.Do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: net.NodeIf}, PeerName: podIfName, PeerNamespace: netlink.NsFd(f.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add veth: %w", err)
		}
		return configure(net.NodeIf, net.NodeAddrs)
	})
	if err != nil {
		return err
	}
	if err := far.Do(func() error { return configure(podIfName, net.Addrs) }); err != nil {
		return err
	}
	return errors.Join(
		n.NS.Do(func() error { return defaultRoutes(net.NodeIf, net.Addrs) }),
		far.Do(func() error { return defaultRoutes(podIfName, net.NodeAddrs) }))
}

func (n *Node) leave() error {
	var errs []error
	for _, j := range n.joined {
		errs = append(errs, n.NS.Do(func() error {
			link, err := netlink.LinkByName(j.nodeIf)
			if err != nil {
				return fmt.Errorf("find link to network: %w", err)
			}
			return netlink.LinkDel(link)
		}), j.ns.Close())
	}
	n.joined = nil
	return errors.Join(errs...)
}

// configure sets an interface of the calling thread's namespace up with addresses.
func configure(name string, addrs []netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return addAddrs(link, addrs...)
}

// defaultRoutes routes everything over the first address of each family.
func defaultRoutes(name string, via []netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	done := map[bool]bool{}
	for _, p := range via {
		if done[p.Addr().Is4()] {
			continue
		}
		done[p.Addr().Is4()] = true
		err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: p.Addr().AsSlice()})
		if err != nil {
			return fmt.Errorf("add default route over %v: %w", p.Addr(), err)
		}
	}
	return nil
}

// AddAddrs gives more addresses to the loopback of a namespace: what is routed there is then received
// and answered.
func (n *NetNS) AddAddrs(addrs ...netip.Addr) error {
	return n.Do(func() error { return setUpLoopback(addrs...) })
}
