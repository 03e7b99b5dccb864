package plugin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	cnins "github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/state"
)

const kindVeth = "veth"

// endpoint is an interface of the sandbox as the kernel knows it, with its end on the host.
type endpoint struct {
	Name  string
	Index int
	Kind  string
	Up    bool
	Addrs []netip.Addr

	Host hostEnd
	Err  error // why there is no Host

	peer   int // ifindex of the peer, in the peer's network namespace
	peerNS int // id of that namespace as the sandbox counts, -1 = the sandbox itself
}

// hostEnd is the interface of the host that the programs are attached to.
type hostEnd struct {
	Name  string
	Index int
}

// carriesTraffic leaves out the fallback devices of tunnel modules, which the kernel makes in every
// network namespace, down and unused.
func (ep endpoint) carriesTraffic() bool { return ep.Up || ep.Kind == kindVeth }

// findInterfaces returns the host interfaces through which all traffic of the attachment passes. Names
// come from prevResult, facts from the kernel: nothing is derived from the name of the pod.
func findInterfaces(prev *types100.Result, sandbox string) ([]state.Interface, error) {
	found, err := findEndpoints(sandbox)
	if err != nil {
		return nil, err
	}
	listing, err := readListing(prev, sandbox)
	if err != nil {
		return nil, err
	}
	chosen, err := listing.choose(found)
	if err != nil {
		return nil, err
	}
	interfaces := make([]state.Interface, 0, len(chosen))
	for _, ep := range chosen {
		addr4, addr6 := listing.addresses(ep)
		interfaces = append(interfaces, state.Interface{Ifindex: ep.Host.Index, Name: ep.Host.Name, Addr4: addr4, Addr6: addr6})
	}
	return interfaces, nil
}

// findEndpoints lists the interfaces of the sandbox, without loopback, in the kernel's order.
func findEndpoints(sandbox string) ([]endpoint, error) {
	if own, err := cnins.CheckNetNS(sandbox); err != nil {
		return nil, err
	} else if own {
		return nil, types.NewError(types.ErrInvalidNetNS, "sandbox "+sandbox+" is the host's own network namespace", "")
	}
	netns, err := ns.GetNS(sandbox)
	if err != nil {
		return nil, types.NewError(types.ErrInvalidNetNS, "open sandbox "+sandbox, err.Error())
	}
	defer func() { _ = netns.Close() }()

	var found []endpoint
	err = netns.Do(func(ns.NetNS) error {
		found, err = listLinks()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list interfaces of sandbox %s: %w", sandbox, err)
	}
	for i := range found {
		found[i].Host, found[i].Err = findHostEnd(found[i], int(netns.Fd()))
	}
	return found, nil
}

// listLinks runs inside the sandbox.
func listLinks() ([]endpoint, error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, err
	}
	addrs, err := netlinksafe.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	var found []endpoint
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.Flags&net.FlagLoopback != 0 {
			continue
		}
		ep := endpoint{
			Name: attrs.Name, Index: attrs.Index, Kind: link.Type(), Up: attrs.Flags&net.FlagUp != 0,
			peer: attrs.ParentIndex, peerNS: attrs.NetNsID,
		}
		for _, addr := range addrs {
			if a, ok := netip.AddrFromSlice(addr.IP); ok && addr.LinkIndex == attrs.Index {
				ep.Addrs = append(ep.Addrs, a.Unmap())
			}
		}
		found = append(found, ep)
	}
	return found, nil
}

// findHostEnd returns the other end of a veth, if that is on the host. Both ends have to name each
// other: an ifindex alone means nothing across network namespaces, and the peer of a pod's veth can be
// in a third one.
func findHostEnd(ep endpoint, sandboxFd int) (hostEnd, error) {
	if ep.Kind != kindVeth {
		return hostEnd{}, fmt.Errorf("a %s interface has no end on the host where traffic could be filtered; only veth has", ep.Kind)
	}
	errElsewhere := errors.New("the other end of the veth is not in the host's network namespace")
	if ep.peerNS < 0 {
		return hostEnd{}, errElsewhere
	}
	link, err := netlink.LinkByIndex(ep.peer)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) {
		return hostEnd{}, errElsewhere
	}
	if err != nil {
		return hostEnd{}, fmt.Errorf("find the host end: %w", err)
	}
	// The kernel gives the sandbox its id on this side with the answer above, so this comes after it.
	sandboxID, err := netlink.GetNetNsIdByFd(sandboxFd)
	if err != nil {
		return hostEnd{}, fmt.Errorf("get id of the sandbox: %w", err)
	}
	attrs := link.Attrs()
	if link.Type() != kindVeth || attrs.ParentIndex != ep.Index || sandboxID < 0 || attrs.NetNsID != sandboxID {
		return hostEnd{}, errElsewhere
	}
	return hostEnd{Name: attrs.Name, Index: attrs.Index}, nil
}
