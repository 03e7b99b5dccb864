package rtnl_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/rtnl"
	"github.com/latch-cni/latch/shared/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// dial opens a conversation in a namespace of the test.
func dial(t *testing.T, ns *testenv.NetNS) *rtnl.Conn {
	t.Helper()
	var c *rtnl.Conn
	ns.MustDo(t, func() (err error) {
		c, err = rtnl.Dial()
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Both ends of a veth name each other, as seen from both namespaces, whoever asks.
func TestEndsOfAVeth(t *testing.T) {
	testenv.RequireRoot(t)
	node, pod := testenv.New(t), testenv.New(t)
	host, peer := testenv.Veth(t, node, "host0", pod, "eth0")
	pod.Addr(t, "eth0", "10.0.0.2/24")
	pod.Addr(t, "eth0", "fd00::2/64")
	netns, err := os.Open(pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer netns.Close()

	var c *rtnl.Conn
	node.MustDo(t, func() (err error) {
		if c, err = rtnl.DialIn(int(netns.Fd())); err != nil {
			return err
		}
		here, err := rtnl.Dial() // this thread is back
		if err != nil {
			return err
		}
		defer here.Close()
		_, err = here.Link(host.Attrs().Index)
		return err
	})
	defer c.Close()

	links, err := c.Links()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(links, func(l rtnl.Link) bool { return l.Name == "eth0" })
	if i < 0 || !slices.ContainsFunc(links, func(l rtnl.Link) bool { return l.Loopback }) {
		t.Fatalf("links of the pod: %+v", links)
	}
	inside := links[i]
	if inside.Index != peer.Attrs().Index || inside.Kind != "veth" || !inside.Up || inside.Peer != host.Attrs().Index || inside.PeerNS < 0 {
		t.Errorf("the pod's end: %+v", inside)
	}
	addrs, err := c.Addrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.0.0.2", "fd00::2"} {
		if !slices.Contains(addrs[inside.Index], netip.MustParseAddr(want)) {
			t.Errorf("addresses of the pod's end: %v, want %s", addrs[inside.Index], want)
		}
	}

	outside := dial(t, node)
	other, err := outside.Link(inside.Peer)
	if err != nil {
		t.Fatal(err)
	}
	id, err := outside.NamespaceID(int(netns.Fd()))
	if err != nil || id < 0 {
		t.Errorf("id of the pod's namespace: %d, %v", id, err)
	}
	if other.Name != "host0" || other.Kind != "veth" || other.Peer != inside.Index || other.PeerNS != id {
		t.Errorf("the host's end: %+v, the pod's namespace is %d", other, id)
	}
}

// A point-to-point address is the device's own, not the other end's.
func TestPointToPointAddress(t *testing.T) {
	testenv.RequireRoot(t)
	node := testenv.New(t)
	node.MustDo(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		host := func(a string) *net.IPNet { return &net.IPNet{IP: net.ParseIP(a), Mask: net.CIDRMask(32, 32)} }
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: host("10.0.0.1"), Peer: host("10.0.0.9")})
	})
	addrs, err := dial(t, node).Addrs()
	own, others := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
	if err != nil || !slices.Contains(addrs[1], own) || slices.Contains(addrs[1], others) {
		t.Errorf("addresses: %v, %v, want %s and not %s", addrs[1], err, own, others)
	}
}

// An error ends its request only: the next one of the conversation has its own answer.
func TestErrorEndsTheRequestOnly(t *testing.T) {
	testenv.RequireRoot(t)
	c := dial(t, testenv.New(t))
	for range 3 {
		if _, err := c.Link(4711); !errors.Is(err, unix.ENODEV) {
			t.Errorf("a device that is not there: %v", err)
		}
		if _, err := c.Do(unix.RTM_NEWLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC)); err == nil {
			t.Error("a request without sense was answered")
		}
		if l, err := c.Link(1); err != nil || l.Name != "lo" || !l.Loopback {
			t.Errorf("loopback: %+v, %v", l, err)
		}
		if name, err := c.Name(4711); !errors.Is(err, unix.ENODEV) {
			t.Errorf("name of a device that is not there: %q, %v", name, err)
		}
		if name, err := c.Name(1); err != nil || name != "lo" {
			t.Errorf("name of loopback: %q, %v", name, err)
		}
	}
}

// A dump that takes many datagrams comes whole.
func TestLongDump(t *testing.T) {
	testenv.RequireRoot(t)
	node := testenv.New(t)
	const pairs = 60
	node.MustDo(t, func() error {
		for i := range pairs {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = fmt.Sprintf("a%d", i)
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: fmt.Sprintf("b%d", i)}); err != nil {
				return err
			}
		}
		return nil
	})
	links, err := dial(t, node).Links()
	if err != nil || len(links) != 2*pairs+1 {
		t.Errorf("%d links, %v, want %d", len(links), err, 2*pairs+1)
	}
}
