package testenv

import (
	"crypto/sha1"
	"encoding/hex"
	"net"
	"net/netip"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
)

// PodSpec says which pod to make. Without HostName the host veth is named as the VPC CNI does.
type PodSpec struct {
	Namespace, Name string
	Labels          map[string]string
	Addr4, Addr6    string // no prefix length; empty = none
	HostName        string
}

// The pods of the field reports.
var (
	PodA = PodSpec{Namespace: "t1", Name: "a-7c9d-x1", Labels: map[string]string{"app": "a"}, Addr4: "10.0.1.11", Addr6: "fd00:10:1::11"}
	PodB = PodSpec{Namespace: "t1", Name: "b-5f4d-y1", Labels: map[string]string{"app": "b"}, Addr4: "10.0.1.12", Addr6: "fd00:10:1::12"}
	PodC = PodSpec{Namespace: "t2", Name: "c-66d8-z1", Labels: map[string]string{"app": "c"}, Addr4: "10.0.1.13", Addr6: "fd00:10:1::13"}
	PodD = PodSpec{Namespace: "kube-system", Name: "dns-1", Labels: map[string]string{"app": "dns"}, Addr4: "10.0.1.53", Addr6: "fd00:10:1::53"}
)

// Gateways of pods, answered by a permanent neighbour.
const (
	gateway4 = "169.254.1.1"
	gateway6 = "fe80::1"
)

// Pod is a sandbox with one interface, eth0, joined to the node as the VPC CNI does.
type Pod struct {
	*NetNS
	Spec        PodSpec
	HostName    string // host veth
	HostIfindex int
	HostMAC     net.HardwareAddr
	IfName      string // in the sandbox: eth0
	Ifindex     int    // in the sandbox
	MAC         net.HardwareAddr
	Addr4       netip.Addr // zero = none
	Addr6       netip.Addr // zero = none
}

// HostVethName is the name that the VPC CNI gives to the host veth of a pod.
func HostVethName(namespace, name string) string {
	sum := sha1.Sum([]byte(namespace + "." + name))
	return "eni" + hex.EncodeToString(sum[:])[:11]
}

// Pod makes a pod on the node: addresses with full prefix length, a default route by a gateway that is
// a permanent neighbour, and a route to the pod on the node.
func (g *GroundT0) Pod(t testing.TB, spec PodSpec) *Pod {
	t.Helper()
	return g.PodIn(t, New(t), spec)
}

// PodIn is Pod for a sandbox that is there already.
func (g *GroundT0) PodIn(t testing.TB, sandbox *NetNS, spec PodSpec) *Pod {
	t.Helper()
	p := &Pod{NetNS: sandbox, Spec: spec, HostName: spec.HostName, IfName: "eth0"}
	if p.HostName == "" {
		p.HostName = HostVethName(spec.Namespace, spec.Name)
	}
	hostEnd, podEnd := Veth(t, g.Node, p.HostName, sandbox, p.IfName)
	p.HostIfindex, p.HostMAC = hostEnd.Attrs().Index, hostEnd.Attrs().HardwareAddr
	p.Ifindex, p.MAC = podEnd.Attrs().Index, podEnd.Attrs().HardwareAddr
	if spec.Addr4 != "" {
		p.Addr4 = netip.MustParseAddr(spec.Addr4)
		sandbox.Addr(t, p.IfName, spec.Addr4+"/32")
		sandbox.Route(t, gateway4+"/32", "", p.IfName)
		sandbox.Route(t, "default4", gateway4, p.IfName)
		sandbox.Neigh(t, p.IfName, gateway4, p.HostMAC)
		g.Node.Route(t, spec.Addr4+"/32", "", p.HostName)
	}
	if spec.Addr6 != "" {
		p.Addr6 = netip.MustParseAddr(spec.Addr6)
		sandbox.Addr(t, p.IfName, spec.Addr6+"/128")
		sandbox.Route(t, gateway6+"/128", "", p.IfName)
		sandbox.Route(t, "default6", gateway6, p.IfName)
		sandbox.Neigh(t, p.IfName, gateway6, p.HostMAC)
		g.Node.Route(t, spec.Addr6+"/128", "", p.HostName)
	}
	return p
}

// PrevResult is what the VPC CNI hands to the plugin after it: host veth, container entry whose Mac is
// a route table, addresses on the container entry, and a pseudo interface at the end.
func (p *Pod) PrevResult() *current.Result {
	container := 1
	r := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: p.HostName, Mac: p.HostMAC.String()},
			{Name: p.IfName, Mac: "254", Sandbox: p.Path()},
			{Name: "dummy" + p.HostName[3:], Mac: "0", Sandbox: "0"},
		},
	}
	for _, a := range []netip.Addr{p.Addr4, p.Addr6} {
		if a.IsValid() {
			bits := a.BitLen()
			r.IPs = append(r.IPs, &current.IPConfig{
				Interface: &container,
				Address:   net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, bits)},
			})
		}
	}
	return r
}
