package packets

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/testenv"
)

// synproxy has the node answer for the pods, and connect to them itself once a client has proved that it is there.
const synproxy = `
table inet syn {
	chain early {
		type filter hook prerouting priority raw;
		iifname eth0 tcp dport 8080 tcp flags & (fin|syn|rst|ack) == syn notrack
	}
	chain late {
		type filter hook forward priority filter;
		iifname eth0 tcp dport 8080 ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm
		ct state invalid drop
	}
}`

// D3: a connection that the node makes for who is outside is not the node's own: no socket of the node has it.
func TestSynproxy(t *testing.T) {
	g := newGround(t, options{})
	g.Node.Sysctl(t, "net.netfilter.nf_conntrack_tcp_loose", "0")
	g.nft(g.Node, synproxy)
	a := g.pod(testenv.PodA, "IE")
	each(t, g, func(t *testing.T, f family) {
		a.set("IE")
		a.ListenTCP(t, at(f.a, 8080))
		before := g.drops()
		if err := tryOnce(g.Ext, at(f.web, 0), at(f.a, 8080)); err == nil || newDrops(before, g.drops()) != "policy" {
			t.Errorf("from outside: %v, dropped %q", err, newDrops(before, g.drops()))
		}
		if err := ask(g.Node, at(f.node, 0), at(f.a, 8080)); err != nil {
			t.Errorf("probe: %v", err)
		}
		a.set("IE", "I "+f.web+" tcp/8080")
		if err := ask(g.Ext, at(f.web, 0), at(f.a, 8080)); err != nil {
			t.Errorf("control, with a rule: %v", err)
		}
	})
}

// A bridge that does not know behind which port a pod is sends copies to all, which do not tell of the node's socket.
func TestNodeBehindFloodingBridge(t *testing.T) {
	g := newGround(t, options{})
	b, c := g.sandbox(g.Pod(t, testenv.PodB)), g.sandbox(g.Pod(t, testenv.PodC))
	g.routedBridge(b, c)
	for p, addr := range map[*pod]string{b: v6.b, c: v6.c} {
		port := g.Node.Link(t, p.HostName)
		if err := g.Node.Netlink.LinkSetLearning(port, false); err != nil {
			t.Fatal(err)
		}
		learned := netlink.Neigh{LinkIndex: port.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER, HardwareAddr: p.mac}
		if err := g.Node.Netlink.NeighDel(&learned); err != nil && !errors.Is(err, unix.ENOENT) {
			t.Fatal(err)
		}
		p.set("IE")
		p.ListenTCP(t, at(addr, 8080))
		if err := ask(g.Node, at(v6.node, 0), at(addr, 8080)); err != nil {
			t.Errorf("probe of %s: %v, dropped %q", p.name, err, newDrops(nil, g.drops()))
		}
	}
}
