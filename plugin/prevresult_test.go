package plugin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/rtnl"
)

// The sandbox of these tests does not exist: entries are compared by path.
const sandboxPath = "/run/netns/no-such-sandbox"

func TestReadListing(t *testing.T) {
	// What the VPC CNI and its egress plugin give for a pod with two interfaces and IPv4 egress.
	prev := &types100.Result{
		Interfaces: []*types100.Interface{
			{Name: "eni0a1b2c3d4e5"},
			{Name: "eth0", Sandbox: sandboxPath, Mac: "254"},
			{Name: "vlan1a2b3c4d5e6"},
			{Name: "mNicIf1", Sandbox: sandboxPath, Mac: "3"},
			{Name: "dummy0a1b2c3d4e5", Mac: "0", Sandbox: "2"},
			{Name: "veth12345678"},
			{Name: "v4if0", Sandbox: sandboxPath},
			nil,
		},
		IPs: []*types100.IPConfig{
			ipConfig("10.0.1.11/32", 1),
			ipConfig("10.0.2.11/32", 3),
			ipConfig("fd00:10:1::11/128", 1),
			ipConfig("10.9.9.1/24", 0),      // of a host interface
			ipConfig("10.9.9.2/24", 99),     // of no interface
			ipConfig("10.9.9.3/24", -1),     // of no interface
			{Address: ipNet("10.9.9.4/24")}, // of an unnamed interface
			nil,
		},
	}
	got, err := readListing(prev, sandboxPath)
	if err != nil {
		t.Fatal(err)
	}
	want := listing{
		inPod: []string{"eth0", "mNicIf1", "v4if0"},
		hosts: map[string]bool{"eni0a1b2c3d4e5": true, "vlan1a2b3c4d5e6": true, "veth12345678": true},
		addrs: map[string][]netip.Addr{
			"eth0":    {netip.MustParseAddr("10.0.1.11"), netip.MustParseAddr("fd00:10:1::11")},
			"mNicIf1": {netip.MustParseAddr("10.0.2.11")},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(listing{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("listing (-want +got):\n%s", diff)
	}
}

func TestReadListingRefusesAnotherNetns(t *testing.T) {
	prev := &types100.Result{Interfaces: []*types100.Interface{{Name: "eth0", Sandbox: "/etc/hostname"}}}
	if _, err := readListing(prev, sandboxPath); err != nil {
		t.Fatalf("a path that is no netns is skipped, got %v", err)
	}
	prev.Interfaces[0].Sandbox = fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
	if _, err := readListing(prev, sandboxPath); err == nil || !strings.Contains(err.Error(), "not the sandbox") {
		t.Errorf("error %v, want a refusal of the other network namespace", err)
	}
}

func TestChoose(t *testing.T) {
	eth0 := endpoint{Link: rtnl.Link{Name: "eth0", Kind: "veth", Up: true}, Host: hostEnd{Name: "eni1", Index: 11}}
	net1 := endpoint{Link: rtnl.Link{Name: "net1", Kind: "veth", Up: true}, Host: hostEnd{Name: "veth2", Index: 12}}
	macvlan := endpoint{Link: rtnl.Link{Name: "eth0", Kind: "macvlan", Up: true}, Err: errors.New("a macvlan interface")}
	tunnel := endpoint{Link: rtnl.Link{Name: "tunl0", Kind: "ipip"}, Err: errors.New("an ipip interface")}
	cases := []struct {
		name  string
		list  listing
		found []endpoint
		want  []string // host ends
		err   string
	}{
		{"both ends listed", listing{inPod: []string{"eth0"}, hosts: names("eni1")}, []endpoint{eth0}, []string{"eni1"}, ""},
		{"host end not listed", listing{inPod: []string{"eth0"}}, []endpoint{eth0}, []string{"eni1"}, ""},
		{"another attachment's interface is left alone", listing{inPod: []string{"net1"}}, []endpoint{eth0, net1}, []string{"veth2"}, ""},
		{"two interfaces", listing{inPod: []string{"eth0", "net1"}}, []endpoint{eth0, net1}, []string{"eni1", "veth2"}, ""},
		{"only the host end of the second is listed", listing{inPod: []string{"eth0"}, hosts: names("veth2")}, []endpoint{eth0, net1}, []string{"eni1", "veth2"}, ""},
		{"nothing listed", listing{}, []endpoint{eth0, net1}, []string{"eni1", "veth2"}, ""},
		{"nothing listed, idle tunnel device", listing{}, []endpoint{tunnel, eth0}, []string{"eni1"}, ""},
		{"only the host end listed", listing{hosts: names("eni1", "cni0")}, []endpoint{eth0}, []string{"eni1"}, ""},
		{"listed interface was renamed", listing{inPod: []string{"tmp0"}}, []endpoint{eth0}, []string{"eni1"}, ""},
		{"one of two was renamed", listing{inPod: []string{"eth0", "tmp0"}}, []endpoint{eth0, net1}, []string{"eni1", "veth2"}, ""},
		{"listed twice", listing{inPod: []string{"eth0", "eth0"}}, []endpoint{eth0}, []string{"eni1"}, ""},
		{"macvlan", listing{inPod: []string{"eth0"}}, []endpoint{macvlan}, nil, "eth0: a macvlan interface"},
		{"macvlan that nobody lists", listing{}, []endpoint{macvlan}, nil, "eth0: a macvlan interface"},
		{"one of two cannot be enforced", listing{inPod: []string{"eth0", "net1"}}, []endpoint{macvlan, net1}, nil, "eth0: a macvlan interface"},
		{"empty sandbox", listing{inPod: []string{"eth0"}}, nil, nil, "no veth in the sandbox"},
		{"empty result and sandbox", listing{}, nil, nil, "no veth in the sandbox"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			chosen, err := c.list.choose(c.found)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, ep := range chosen {
				got = append(got, ep.Host.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("host ends (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	a := netip.MustParseAddr
	cases := []struct {
		name         string
		listed       []netip.Addr
		kernel       []netip.Addr
		want4, want6 netip.Addr
	}{
		{"listed ones win", []netip.Addr{a("10.0.0.2"), a("fd00::2")}, []netip.Addr{a("10.0.0.1"), a("fd00::1")}, a("10.0.0.2"), a("fd00::2")},
		{"kernel fills the other family", []netip.Addr{a("10.0.0.2")}, []netip.Addr{a("10.0.0.2"), a("fe80::1"), a("fd00::1")}, a("10.0.0.2"), a("fd00::1")},
		{"link-local IPv4 of an egress interface", nil, []netip.Addr{a("169.254.172.2"), a("fe80::1")}, a("169.254.172.2"), netip.Addr{}},
		{"none", nil, nil, netip.Addr{}, netip.Addr{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := listing{addrs: map[string][]netip.Addr{"eth0": c.listed}}
			got4, got6 := l.addresses(endpoint{Link: rtnl.Link{Name: "eth0"}, Addrs: c.kernel})
			if got4 != c.want4 || got6 != c.want6 {
				t.Errorf("addresses %v and %v, want %v and %v", got4, got6, c.want4, c.want6)
			}
		})
	}
}

func names(list ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range list {
		set[name] = true
	}
	return set
}

func ipNet(cidr string) net.IPNet {
	ip, block, err := net.ParseCIDR(cidr)
	if err != nil {
		panic(err)
	}
	return net.IPNet{IP: ip, Mask: block.Mask}
}

func ipConfig(cidr string, index int) *types100.IPConfig {
	return &types100.IPConfig{Address: ipNet(cidr), Interface: types100.Int(index)}
}
