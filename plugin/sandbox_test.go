package plugin

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// found is what the tests compare: ifindexes are looked up by name and must agree.
type found struct {
	Name         string
	Addr4, Addr6 string
}

func TestFindInterfaces(t *testing.T) {
	testenv.RequireRoot(t)
	cases := []struct {
		name  string
		build func(g *ground)
		list  []types100.Interface // "pod" as Sandbox stands for the sandbox's path
		ips   []*types100.IPConfig
		want  []found
		err   string
	}{
		{
			name:  "one veth, both ends listed",
			build: func(g *ground) { g.veth("eni1", "eth0", "10.0.1.11/32", "fd00:10:1::11/128") },
			list:  []types100.Interface{{Name: "eni1"}, {Name: "eth0", Sandbox: "pod", Mac: "254"}},
			ips:   []*types100.IPConfig{ipConfig("10.0.1.11/32", 1)},
			want:  []found{{"eni1", "10.0.1.11", "fd00:10:1::11"}},
		},
		{
			name: "pod of the VPC CNI with two cards and IPv4 egress",
			build: func(g *ground) {
				g.veth("eni1", "eth0", "fd00:10:1::11/128")
				g.veth("eni2", "mNicIf1", "fd00:10:2::11/128")
				g.veth("veth12345678", "v4if0", "169.254.172.2/22")
			},
			list: []types100.Interface{
				{Name: "eni1"}, {Name: "eth0", Sandbox: "pod", Mac: "254"},
				{Name: "eni2"}, {Name: "mNicIf1", Sandbox: "pod", Mac: "2"},
				{Name: "dummy1", Mac: "0", Sandbox: "1"},
				{Name: "veth12345678"}, {Name: "v4if0", Sandbox: "pod"},
			},
			ips: []*types100.IPConfig{ipConfig("fd00:10:1::11/128", 1), ipConfig("fd00:10:2::11/128", 3)},
			want: []found{
				{"eni1", "", "fd00:10:1::11"}, {"eni2", "", "fd00:10:2::11"}, {"veth12345678", "169.254.172.2", ""},
			},
		},
		{
			name:  "security-group pod",
			build: func(g *ground) { g.veth("vlan1a2b3c4d5e6", "eth0", "10.0.1.11/32") },
			list:  []types100.Interface{{Name: "vlan1a2b3c4d5e6"}, {Name: "eth0", Sandbox: "pod"}, {Name: "dummy1", Mac: "4", Sandbox: "1"}},
			want:  []found{{"vlan1a2b3c4d5e6", "10.0.1.11", ""}},
		},
		{
			name:  "host end not listed",
			build: func(g *ground) { g.veth("cali1", "eth0", "10.0.1.11/32") },
			list:  []types100.Interface{{Name: "eth0", Sandbox: "pod"}},
			want:  []found{{"cali1", "10.0.1.11", ""}},
		},
		{
			name:  "listed host interface is not the peer",
			build: func(g *ground) { g.veth("veth1", "eth0"); g.bridge(g.host, "cni0") },
			list:  []types100.Interface{{Name: "cni0"}, {Name: "nonesuch"}, {Name: "eth0", Sandbox: "pod"}},
			want:  []found{{"veth1", "", ""}},
		},
		{
			name: "renamed on both ends, and the old name is another pod's now",
			build: func(g *ground) {
				g.veth("new0", "net0", "10.0.1.11/32")
				other := testenv.New(g.t)
				g.vethTo(other, "eni1", "eth0")
			},
			list: []types100.Interface{{Name: "eni1"}, {Name: "eth0", Sandbox: "pod"}},
			want: []found{{"new0", "10.0.1.11", ""}},
		},
		{
			name:  "nothing listed",
			build: func(g *ground) { g.veth("eni1", "eth0", "10.0.1.11/32") },
			want:  []found{{"eni1", "10.0.1.11", ""}},
		},
		{
			name: "another attachment's interface",
			build: func(g *ground) {
				g.veth("eni1", "eth0", "10.0.1.11/32")
				g.veth("veth1", "net1", "10.0.2.11/32")
			},
			list: []types100.Interface{{Name: "veth1"}, {Name: "net1", Sandbox: "pod"}},
			want: []found{{"veth1", "10.0.2.11", ""}},
		},
		{
			name:  "macvlan",
			build: func(g *ground) { g.bridge(g.host, "up0"); g.macvlan("up0", "eth0") },
			list:  []types100.Interface{{Name: "eth0", Sandbox: "pod"}},
			err:   "eth0: a macvlan interface has no end on the host",
		},
		{
			name:  "veth and macvlan",
			build: func(g *ground) { g.veth("eni1", "eth0"); g.bridge(g.host, "up0"); g.macvlan("up0", "net1") },
			list:  []types100.Interface{{Name: "eni1"}, {Name: "eth0", Sandbox: "pod"}, {Name: "net1", Sandbox: "pod"}},
			err:   "net1: a macvlan interface has no end on the host",
		},
		{
			name:  "bridge moved into the sandbox, not listed",
			build: func(g *ground) { g.bridge(g.pod, "eth0") },
			err:   "eth0: a bridge interface has no end on the host",
		},
		{
			name:  "peer in a third network namespace",
			build: func(g *ground) { g.vethBetween(testenv.New(g.t), "veth1", g.pod, "eth0") },
			list:  []types100.Interface{{Name: "eth0", Sandbox: "pod"}},
			err:   "eth0: the other end of the veth is not in the host's network namespace",
		},
		{
			name:  "peer in the sandbox itself",
			build: func(g *ground) { g.vethBetween(g.pod, "veth1", g.pod, "eth0") },
			list:  []types100.Interface{{Name: "eth0", Sandbox: "pod"}},
			err:   "eth0: the other end of the veth is not in the host's network namespace",
		},
		{
			name:  "loopback only",
			build: func(*ground) {},
			list:  []types100.Interface{{Name: "lo", Sandbox: "pod"}},
			err:   "no veth in the sandbox",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := newGround(t)
			c.build(g)
			prev := &types100.Result{IPs: c.ips}
			for _, entry := range c.list {
				if entry.Sandbox == "pod" {
					entry.Sandbox = g.pod.Path()
				}
				prev.Interfaces = append(prev.Interfaces, &entry)
			}
			got, err := g.find(prev)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("interfaces %v, error %v, want error %q", got, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, g.comparable(got)); diff != "" {
				t.Errorf("interfaces (-want +got):\n%s", diff)
			}
		})
	}
}

// The peer's ifindex is the same number in every network namespace that has so many interfaces: it
// must not be taken for an interface of the host.
func TestFindInterfacesIsNotFooledByEqualIndexes(t *testing.T) {
	testenv.RequireRoot(t)
	g := newGround(t)
	third := testenv.New(t)
	g.vethBetween(third, "veth1", g.pod, "eth0")
	g.veth("eni1", "net1") // the host has an interface with the index of veth1 in the third namespace
	prev := &types100.Result{Interfaces: []*types100.Interface{{Name: "eth0", Sandbox: g.pod.Path()}}}
	if got, err := g.find(prev); err == nil {
		t.Errorf("interfaces %v, want an error", got)
	}
}

func TestFindInterfacesRefusesTheHostsOwnNetns(t *testing.T) {
	testenv.RequireRoot(t)
	g := newGround(t)
	g.veth("eni1", "eth0")
	g.pod = g.host
	_, err := g.find(&types100.Result{})
	wantCode(t, err, types.ErrInvalidNetNS, "host's own network namespace")
}

func TestFindInterfacesWithoutSandbox(t *testing.T) {
	_, err := findInterfaces(&types100.Result{}, "/run/netns/no-such-sandbox")
	wantCode(t, err, types.ErrInvalidNetNS, "/run/netns/no-such-sandbox")
}

// ground is a host and the sandbox of one pod.
type ground struct {
	t    *testing.T
	host *testenv.NetNS
	pod  *testenv.NetNS
}

func newGround(t *testing.T) *ground {
	t.Helper()
	return &ground{t: t, host: testenv.New(t), pod: testenv.New(t)}
}

func (g *ground) find(prev *types100.Result) (interfaces []state.Interface, err error) {
	err = g.host.Do(func() error {
		interfaces, err = findInterfaces(prev, g.pod.Path())
		return err
	})
	return interfaces, err
}

// comparable drops the ifindexes after comparing them with the host's.
func (g *ground) comparable(interfaces []state.Interface) (list []found) {
	g.t.Helper()
	text := func(a netip.Addr) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	}
	for _, i := range interfaces {
		if want := g.host.Link(g.t, i.Name).Attrs().Index; i.Ifindex != want {
			g.t.Errorf("%s has ifindex %d, want %d", i.Name, i.Ifindex, want)
		}
		list = append(list, found{i.Name, text(i.Addr4), text(i.Addr6)})
	}
	return list
}

func (g *ground) veth(hostName, podName string, addrs ...string) {
	g.t.Helper()
	g.vethTo(g.pod, hostName, podName, addrs...)
}

func (g *ground) vethTo(pod *testenv.NetNS, hostName, podName string, addrs ...string) {
	g.t.Helper()
	g.vethBetween(g.host, hostName, pod, podName, addrs...)
}

func (g *ground) vethBetween(a *testenv.NetNS, aName string, b *testenv.NetNS, bName string, addrs ...string) {
	g.t.Helper()
	testenv.Veth(g.t, a, aName, b, bName)
	b.Addr(g.t, bName, addrs...)
}

func (g *ground) bridge(n *testenv.NetNS, name string) {
	g.t.Helper()
	if err := n.Netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs(name)}); err != nil {
		g.t.Fatal(err)
	}
	n.Up(g.t, name)
}

func (g *ground) macvlan(parent, name string) {
	g.t.Helper()
	a := attrs(name)
	a.ParentIndex, a.Namespace = g.host.Link(g.t, parent).Attrs().Index, netlink.NsFd(g.pod.FD())
	if err := g.host.Netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
		g.t.Fatal(err)
	}
}

func attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}
