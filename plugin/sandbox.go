package plugin

import (
	"errors"
	"fmt"
	"net/netip"

	cnins "github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/rtnl"
	"github.com/latch-cni/latch/shared/state"
)

const kindVeth = "veth"

// endpoint is an interface of the sandbox as the kernel knows it, with its end on the host.
type endpoint struct {
	rtnl.Link
	Addrs []netip.Addr

	Host hostEnd
	Err  error // why there is no Host
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
	host, err := rtnl.Dial()
	if err != nil {
		return nil, err
	}
	defer func() { _ = host.Close() }()
	found, err := listEndpoints(int(netns.Fd()))
	if err != nil {
		return nil, fmt.Errorf("list interfaces of sandbox %s: %w", sandbox, err)
	}
	for i := range found {
		found[i].Host, found[i].Err = findHostEnd(host, found[i], int(netns.Fd()))
	}
	return found, nil
}

func listEndpoints(sandbox int) ([]endpoint, error) {
	c, err := rtnl.DialIn(sandbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	links, err := c.Links()
	if err != nil {
		return nil, err
	}
	addrs, err := c.Addrs()
	if err != nil {
		return nil, err
	}
	var found []endpoint
	for _, link := range links {
		if !link.Loopback {
			found = append(found, endpoint{Link: link, Addrs: addrs[link.Index]})
		}
	}
	return found, nil
}

// findHostEnd returns the other end of a veth, if that is on the host. Both ends have to name each
// other: an ifindex alone means nothing across network namespaces, and the peer of a pod's veth can be
// in a third one.
func findHostEnd(host *rtnl.Conn, ep endpoint, sandbox int) (hostEnd, error) {
	if ep.Kind != kindVeth {
		return hostEnd{}, fmt.Errorf("a %s interface has no end on the host where traffic could be filtered; only veth has", ep.Kind)
	}
	errElsewhere := errors.New("the other end of the veth is not in the host's network namespace")
	if ep.PeerNS < 0 {
		return hostEnd{}, errElsewhere
	}
	link, err := host.Link(ep.Peer)
	if errors.Is(err, unix.ENODEV) {
		return hostEnd{}, errElsewhere
	}
	if err != nil {
		return hostEnd{}, fmt.Errorf("find the host end: %w", err)
	}
	// The kernel gives the sandbox its id on this side with the answer above, so this comes after it.
	sandboxID, err := host.NamespaceID(sandbox)
	if err != nil {
		return hostEnd{}, err
	}
	if link.Kind != kindVeth || link.Peer != ep.Index || sandboxID < 0 || link.PeerNS != sandboxID {
		return hostEnd{}, errElsewhere
	}
	return hostEnd{Name: link.Name, Index: link.Index}, nil
}
