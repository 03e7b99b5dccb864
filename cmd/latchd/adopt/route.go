package adopt

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/state"
)

// Interfaces returns the host interfaces of the pod that has these addresses. Call it in the node's network
// namespace.
func Interfaces(addrs []netip.Addr) ([]state.Interface, error) {
	var found []state.Interface
	sandboxes := map[int]bool{}
	for _, addr := range addrs {
		link, err := hostInterface(addr)
		if err != nil {
			return nil, err
		}
		sandboxes[link.Attrs().NetNsID] = true
		if found, err = add(found, withAddr(link, addr)); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no address is known")
	}
	return others(found, sandboxes)
}

// Sandboxes tells whether there is anything on the node that could be adopted. Call it in the node's network
// namespace.
func Sandboxes() (bool, error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return false, fmt.Errorf("list interfaces: %w", err)
	}
	routes, err := netlinksafe.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return false, fmt.Errorf("list routes: %w", err)
	}
	ends := map[int]bool{}
	for _, r := range routes {
		if leadsToOne(r) {
			ends[r.LinkIndex] = true
		}
	}
	return slices.ContainsFunc(links, func(l netlink.Link) bool {
		return l.Type() == "veth" && l.Attrs().NetNsID >= 0 && ends[l.Attrs().Index]
	}), nil
}

func withAddr(link netlink.Link, addr netip.Addr) state.Interface {
	in := state.Interface{Ifindex: link.Attrs().Index, Name: link.Attrs().Name}
	if addr.Is4() {
		in.Addr4 = addr
	} else {
		in.Addr6 = addr
	}
	return in
}

// others adds the interfaces that lead into the same sandboxes and of whose addresses the API server does
// not tell, as for IPv4 of a pod in an IPv6 cluster. A port of a bridge is of another network's.
func others(found []state.Interface, sandboxes map[int]bool) ([]state.Interface, error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, link := range links {
		a := link.Attrs()
		known := slices.ContainsFunc(found, func(in state.Interface) bool { return in.Ifindex == a.Index })
		if known || link.Type() != "veth" || a.MasterIndex != 0 || !sandboxes[a.NetNsID] {
			continue
		}
		in := state.Interface{Ifindex: a.Index, Name: a.Name}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netlinksafe.RouteListFiltered(family, &netlink.Route{LinkIndex: a.Index}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
			if err != nil {
				return nil, fmt.Errorf("list routes to interface %s: %w", a.Name, err)
			}
			setOnly(&in, routes)
		}
		found = append(found, in)
	}
	return found, nil
}

// setOnly sets the address to which routes lead, if it is one.
func setOnly(in *state.Interface, routes []netlink.Route) {
	routes = slices.DeleteFunc(routes, func(r netlink.Route) bool {
		return !leadsToOne(r) || r.Dst.IP.IsLinkLocalUnicast() && r.Dst.IP.To4() == nil
	})
	if len(routes) != 1 {
		return
	}
	if addr, ok := netip.AddrFromSlice(routes[0].Dst.IP); ok && addr.Unmap().Is4() {
		in.Addr4 = addr.Unmap()
	} else if ok {
		in.Addr6 = addr
	}
}

// leadsToOne tells whether a route leads to an interface, and is of one address alone.
func leadsToOne(r netlink.Route) bool {
	if r.Dst == nil || r.Type != unix.RTN_UNICAST || r.Gw != nil {
		return false
	}
	ones, bits := r.Dst.Mask.Size()
	return ones == bits
}

// add joins the addresses of one interface, which bears one of each family.
func add(found []state.Interface, in state.Interface) ([]state.Interface, error) {
	for i := range found {
		was := &found[i]
		if was.Ifindex != in.Ifindex {
			continue
		}
		if was.Addr4.IsValid() && in.Addr4.IsValid() || was.Addr6.IsValid() && in.Addr6.IsValid() {
			return nil, fmt.Errorf("interface %s has several addresses of one family", in.Name)
		}
		if in.Addr4.IsValid() {
			was.Addr4 = in.Addr4
		} else {
			was.Addr6 = in.Addr6
		}
		return found, nil
	}
	return append(found, in), nil
}

func hostInterface(addr netip.Addr) (netlink.Link, error) {
	route, err := routeTo(addr)
	if err != nil {
		return nil, err
	}
	link, err := netlink.LinkByIndex(route.LinkIndex)
	if err != nil {
		return nil, fmt.Errorf("interface %d, to which the route to %s leads: %w", route.LinkIndex, addr, err)
	}
	switch {
	case link.Type() != "veth":
		return nil, fmt.Errorf("the route to %s leads to %s, which is a %s and no veth", addr, link.Attrs().Name, link.Type())
	case link.Attrs().NetNsID < 0:
		return nil, fmt.Errorf("the route to %s leads to %s, whose other end is not in a sandbox", addr, link.Attrs().Name)
	}
	return link, nil
}

// routeTo finds the route that leads to an address alone: the one that the node takes, or else the only one
// in tables for what comes in by certain interfaces.
func routeTo(addr netip.Addr) (netlink.Route, error) {
	taken, err := netlink.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err == nil && len(taken) == 1 && leadsToOne(taken[0]) {
		return taken[0], nil
	}
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	own := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
	all, listErr := netlinksafe.RouteListFiltered(family, &netlink.Route{Dst: own, Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_DST|netlink.RT_FILTER_TABLE)
	if listErr != nil {
		return netlink.Route{}, fmt.Errorf("list routes to %s: %w", addr, listErr)
	}
	all = slices.DeleteFunc(all, func(r netlink.Route) bool { return !leadsToOne(r) })
	switch {
	case len(all) > 0 && !slices.ContainsFunc(all, func(r netlink.Route) bool { return r.LinkIndex != all[0].LinkIndex }):
		return all[0], nil
	case len(all) > 0:
		return netlink.Route{}, fmt.Errorf("routes to %s lead to several interfaces", addr)
	case err != nil:
		return netlink.Route{}, fmt.Errorf("no route to %s: %w", addr, err)
	case len(taken) != 1 || taken[0].Dst == nil:
		return netlink.Route{}, fmt.Errorf("no route leads to %s alone", addr)
	}
	if ones, bits := taken[0].Dst.Mask.Size(); ones != bits {
		return netlink.Route{}, fmt.Errorf("no route leads to %s alone, only one to %s", addr, taken[0].Dst)
	}
	return netlink.Route{}, fmt.Errorf("no route leads to an interface of %s", addr)
}
