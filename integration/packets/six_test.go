package packets

import (
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// R9: discovery on the link passes under a policy that allows nothing; what looks like it and has been
// forwarded, or could leave the link, does not.
func TestR9Discovery(t *testing.T) {
	g := newGround(t, options{both: true, mute: true, bridge: true})
	b := g.pod(testenv.PodB, "IE")
	msg := func(src, dst string, kind, hops uint8) []byte {
		return shot{family: v6, src: src, dst: dst}.discovery(kind, hops)
	}
	const host, own, group = "fe80::1", "fe80::12", "ff02::1:ff00:12"
	for _, c := range []struct {
		want, what string
		in         bool
		data       []byte
	}{
		{"allow", "solicitation of the host veth", true, msg(host, group, 135, 255)},
		{"allow", "solicitation by unicast", true, msg(host, v6.b, 135, 255)},
		{"allow", "advertisement of the pod", false, msg(v6.b, host, 136, 255)},
		{"allow", "solicitation of the pod", false, msg(v6.b, "ff02::1:ff00:1", 135, 255)},
		{"allow", "duplicate address detection of the pod", false, msg("::", group, 135, 255)},
		{"allow", "duplicate address detection of another", true, msg("::", group, 135, 255)},
		{"allow", "router solicitation", false, msg(own, "ff02::2", 133, 255)},
		{"allow", "router advertisement", true, msg(host, "ff02::1", 134, 255)},
		{"allow", "MLDv2 report of the host veth", true, msg(host, "ff02::16", 143, 1)},
		{"allow", "MLDv2 report of the pod", false, msg(own, "ff02::16", 143, 1)},
		{"allow", "MLDv2 report before there is an address", false, msg("::", "ff02::16", 143, 1)},
		{"allow", "MLD query", true, msg(host, "ff02::1", 130, 1)},
		{"allow", "MLD done", false, msg(own, "ff02::2", 132, 1)},
		{"deny policy", "solicitation from beyond the link", true, msg(v6.web, v6.b, 135, 254)},
		{"deny policy", "advertisement into the world", false, msg(v6.b, v6.web, 136, 254)},
		{"deny policy", "MLD from beyond the link", true, msg(v6.web, v6.b, 143, 2)},
		{"deny policy", "redirect", true, msg(host, v6.b, 137, 255)},
		{"deny policy", "echo", true, testenv.Ping(v6.web, v6.b, false, 1, 1)},
		{"deny policy", "echo to all nodes", false, testenv.Ping(own, "ff02::1", false, 1, 1)},
		{"deny policy", "datagram to all nodes", false, datagram(at(own, 1), at("ff02::1", 5353), 10)},
	} {
		from, to := b.end, g.ext
		if c.in {
			from, to = to, from
		}
		g.stateless(c.what, func() { g.want(c.want, c.what, from, to, c.data) })
	}
}

// R9: with real stacks. Neighbours are forgotten on both sides and have to be found again, an address is
// probed for duplicates, and a second interface with the other family is under the same policy.
func TestR9Breathes(t *testing.T) {
	g := newGround(t, options{both: true})
	g.nft(g.Node, `table ip nat { chain post { type nat hook postrouting priority srcnat; ip saddr 169.254.172.0/22 masquerade; }; }`)
	spec := testenv.PodB
	spec.Addr4 = ""
	b := g.sandbox(g.Pod(t, spec))
	host, _ := testenv.Veth(t, g.Node, "v4if0000b2", b.NetNS, "v4if0")
	g.Node.Addr(t, "v4if0000b2", "169.254.172.1/22")
	b.NetNS.Addr(t, "v4if0", "169.254.172.2/22")
	b.NetNS.Route(t, "default4", "169.254.172.1", "v4if0")
	b.attachment.Interfaces = append(b.attachment.Interfaces, state.Interface{Ifindex: host.Attrs().Index, Name: "v4if0000b2", Addr4: addr("169.254.172.2")})
	b.set("IE", "E "+v6.web+" tcp/443", "E "+v4.other+" tcp/443", "I "+v6.a+" tcp/8080")
	a, c := g.pod(testenv.PodA, ""), g.pod(testenv.PodC, "")
	b.ListenTCP(t, at(v6.b, 8080))
	for _, s := range []string{at(v6.web, 443), at(v6.web, 80), at(v4.other, 443), at(v4.other, 80), at(v4.web, 443), at(testenv.ExtIMDS4, 80)} {
		g.Ext.ListenTCP(t, s)
	}

	g.Node.Addr(t, b.HostName, "fe80::1/64")
	g.forget(g.Node, b.HostName)
	g.forget(b.NetNS, "eth0")
	if err := ask(g.Node, at(v6.node, 0), at(v6.b, 8080)); err != nil {
		t.Errorf("after the neighbours were forgotten, node > B: %v, dropped %q", err, newDrops(nil, g.drops()))
	}
	g.forget(g.Node, b.HostName)
	g.forget(b.NetNS, "eth0")
	if err := ask(a.NetNS, at(v6.a, 0), at(v6.b, 8080)); err != nil {
		t.Errorf("after the neighbours were forgotten, A > B: %v", err)
	}
	if err := tryOnce(c.NetNS, at(v6.c, 0), at(v6.b, 8080)); err == nil {
		t.Error("C > B was answered")
	}
	for _, x := range []struct {
		remote string
		want   bool
	}{
		{at(v6.web, 443), true}, {at(v6.web, 80), false}, {at(v4.other, 443), true}, {at(v4.other, 80), false},
		{at(v4.web, 443), false}, {at(testenv.ExtIMDS4, 80), false},
	} {
		local := at(v6.b, 0)
		if x.remote[0] != '[' {
			local = at("169.254.172.2", 0)
		}
		reach := tryOnce
		if x.want {
			reach = ask
		}
		if err := reach(b.NetNS, local, x.remote); (err == nil) != x.want {
			t.Errorf("B > %s: %v, want allowed %v", x.remote, err, x.want)
		}
	}

	links := func() uint64 {
		return g.counters(func(k bpf.CounterKey) bool { return k.Allow == 1 && k.Dir == bpf.Egress })[uint8(bpf.ReasonLink)]
	}
	for key, value := range map[string]string{"accept_dad": "1", "dad_transmits": "1"} {
		b.NetNS.Sysctl(t, "net.ipv6.conf.eth0."+key, value)
	}
	before := links()
	probed, err := netlink.ParseAddr("fd00:10:1::99/128")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.NetNS.Netlink.AddrAdd(b.NetNS.Link(t, "eth0"), probed); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 5*time.Second, func() error {
		if links() == before {
			return fmt.Errorf("no packet of discovery has passed since the address was added")
		}
		return nil
	})
	b.set("")
	for _, remote := range []string{at(v6.web, 80), at(v4.other, 80), at(v4.web, 443), at(testenv.ExtIMDS4, 80)} {
		local := at(v6.b, 0)
		if remote[0] != '[' {
			local = at("169.254.172.2", 0)
		}
		if err := ask(b.NetNS, local, remote); err != nil {
			t.Errorf("without policy, B > %s: %v", remote, err)
		}
	}
}

// forget deletes the IPv6 neighbours of an interface.
func (g *ground) forget(ns *testenv.NetNS, dev string) {
	g.t.Helper()
	index := ns.Link(g.t, dev).Attrs().Index
	neighbours, err := ns.Netlink.NeighList(index, netlink.FAMILY_V6)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, n := range neighbours {
		if n.State&(netlink.NUD_NOARP) == 0 {
			if err := ns.Netlink.NeighDel(&n); err != nil {
				g.t.Fatal(err)
			}
		}
	}
}

// An IPv4 address of the node, written as one of IPv6, is not the node's: Linux sends the packet on.
func TestMappedAddressOfNode(t *testing.T) {
	g := newGround(t, options{mute: true})
	a := g.pod(testenv.PodA, "")
	mapped := "::ffff:" + v4.node
	g.want("allow", "control, no policy", a.end, g.ext, testenv.Ping(v6.a, mapped, false, 1, 1))
	a.set("E")
	g.want("deny policy", "echo to the outside", a.end, g.ext, testenv.Ping(v6.a, mapped, false, 2, 1))
}
