package cluster

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// testNodeAddrs takes the node's addresses from its object: an isolated pod reaches its own node, also
// at an address that was added, and while the API server is away.
func testNodeAddrs(t *testing.T, cp *controlPlane) {
	n := newNode(t, cp, nodeOptions{})
	second := netip.MustParseAddr("198.18.9.3")
	n.must(n.NS.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: second.AsSlice(), Mask: net.CIDRMask(32, 32)}}); err != nil {
			return err
		}
		l, err := net.Listen("tcp", ":9000")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		go echo(l)
		return nil
	}))
	n.must(cp.apply(object{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": object{"name": "shut", "namespace": n.ns},
		"spec": object{"podSelector": object{}, "policyTypes": []string{"Egress"}}}))
	a := n.pod("a", object{"app": "a"}).add() // no endpoints object yet: isolated without rules
	reaches := func(what, want string, to netip.Addr) {
		t.Helper()
		from := a.addrs[0]
		if to.Is6() {
			from = a.addrs[1]
		}
		n.eventually(inForce, func() error {
			got, err := try(a.NS, netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 9000))
			if err == nil && got != want {
				t.Logf("%s: %s %s, want %s so far", what, to, got, want)
				err = errNotYet
			}
			return err
		})
	}
	reaches("from the Node object", allow, nodeAddrs[0])
	reaches("from the Node object", allow, nodeAddrs[1])
	reaches("an address that the Node object lacks", deny, second)
	n.register(append(nodeAddrs[:len(nodeAddrs):len(nodeAddrs)], second)...)
	reaches("an address that was added", allow, second)

	n.must(n.KillLatchd())
	release := n.gate.hold("/")
	defer release()
	n.must(n.StartLatchd())
	time.Sleep(time.Second)
	reaches("after a restart without the API server", allow, second)
	release()
	n.must(n.WaitReady(t.Context(), 20*time.Second))
	n.register(nodeAddrs...)
	reaches("an address that was removed", deny, second)
}
