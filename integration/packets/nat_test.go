package packets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/testenv"
)

// nft loads rules into a namespace.
func (g *ground) nft(ns *testenv.NetNS, rules string) {
	g.t.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		testenv.Missing(g.t, "nft is not installed")
	}
	cmd := exec.Command(path, "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if err := ns.Do(func() error {
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}); err != nil {
		g.t.Fatalf("load rules: %v", err)
	}
}

// translations of the node: a service, and masquerading of what leaves it.
const translations = `
table inet nat {
	chain prerouting {
		type nat hook prerouting priority dstnat;
		ip daddr 172.20.0.80 tcp dport 80 dnat ip to 203.0.113.9:8080
		ip6 daddr fd00:20::80 tcp dport 80 dnat ip6 to [2001:db8:9::9]:8080
	}
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ip daddr 198.51.100.7 oifname eth0 masquerade
		ip6 daddr 2001:db8:7::7 oifname eth0 masquerade
	}
}`

// R8: errors about what the node has translated come back to the pod as the kernel translates them, and
// belong to the flow as the pod sees it.
func TestR8Translated(t *testing.T) {
	g := newGround(t, options{mute: true})
	g.nft(g.Node, translations)
	a := g.pod(testenv.PodA, "IE", "E "+v4.web+" tcp/443", "E "+v6.web+" tcp/443", "E 172.20.0.80 tcp/80", "E fd00:20::80 tcp/80")
	wantAs := func(want, what string, from, to *end, frame, arriving []byte) {
		t.Helper()
		if got := g.fateAs(from, to, frame, arriving); got != want {
			g.t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	each(t, g, func(t *testing.T, f family) {
		vip := map[int]string{32: "172.20.0.80", 128: "fd00:20::80"}[f.bits]
		short := f.header() + 8
		pod, web := at(f.a, 41000), at(f.web, 443)
		masked := at(f.node, 41000)
		wantAs("allow", "SYN", a.end, g.ext, segment(pod, web, syn, 1000, 0), segment(masked, web, syn, 1000, 0))
		wantAs("allow", "SYN ACK", g.ext, a.end, segment(web, masked, syn|ack, 5000, 1001), segment(web, pod, syn|ack, 5000, 1001))
		wantAs("allow", "ACK", a.end, g.ext, segment(pod, web, ack, 1001, 5001), segment(masked, web, ack, 1001, 5001))
		pod2, backend := at(f.a, 41010), at(f.other, 8080)
		wantAs("allow", "SYN to the VIP", a.end, g.ext, segment(pod2, at(vip, 80), syn, 1000, 0), segment(pod2, backend, syn, 1000, 0))
		wantAs("allow", "SYN ACK of the backend", g.ext, a.end, segment(backend, pod2, syn|ack, 5000, 1001), segment(at(vip, 80), pod2, syn|ack, 5000, 1001))
		g.stateless("errors", func() {
			for _, k := range []icmpKind{tooBig, unreachable, timeExceeded} {
				wantAs("allow", "error about a masqueraded packet", g.ext, a.end,
					f.icmpError(k, f.router, f.node, 1300, testenv.TCP(masked, web, ack), short),
					f.icmpError(k, f.router, f.a, 1300, testenv.TCP(pod, web, ack), short))
				// The kernel gives the error the VIP's address, too.
				wantAs("allow", "error about a packet to the VIP", g.ext, a.end,
					f.icmpError(k, f.router, f.a, 1300, testenv.TCP(pod2, backend, ack), short),
					f.icmpError(k, vip, f.a, 1300, testenv.TCP(pod2, at(vip, 80), ack), short))
			}
			g.want("deny policy", "error about a flow that neither knows", g.ext, a.end,
				f.icmpError(tooBig, f.router, f.a, 1300, testenv.TCP(at(f.a, 41020), web, ack), short))
		})
	})
}

// R8: an error whose quote lies outside of the linear part of its buffer.
func TestR8NonLinear(t *testing.T) {
	g := newGround(t, options{both: true, mute: true})
	a := g.pod(testenv.PodA, "IE", "E "+v4.web+" tcp/443", "E "+v6.web+" tcp/443")
	each(t, g, func(t *testing.T, f family) {
		g.established(a.end, g.ext, at(f.a, 41000), at(f.web, 443))
		for _, c := range []struct {
			port int
			want bool
		}{{41000, true}, {41001, false}, {41000, true}} {
			mark := fmt.Appendf(nil, "non-linear %s %d", f.name, c.port)
			quoted := testenv.TCP(at(f.a, c.port), at(f.web, 443), ack, append(make([]byte, 400), mark...)...)
			seen := a.NetNS.Capture(t, "eth0", func(frame []byte) bool { return bytes.Contains(frame, mark) })
			before := g.drops()
			g.corked(f, f.icmpError(tooBig, f.router, f.a, 1300, quoted, 548))
			testenv.Eventually(t, patience, func() error {
				if dropped := newDrops(before, g.drops()) != ""; (seen.Count() > 0) != c.want || dropped == c.want {
					return fmt.Errorf("error about port %d: arrived %d times, dropped %v", c.port, seen.Count(), dropped)
				}
				return nil
			})
		}
	})
}

// corked sends the ICMP message of a frame from the outside's own stack in two pieces, the second of
// which the kernel keeps in pages of its own.
func (g *ground) corked(f family, frame []byte) {
	g.t.Helper()
	message := frame[14+f.header():]
	g.Ext.MustDo(g.t, func() error {
		domain, proto := unix.AF_INET, unix.IPPROTO_ICMP
		var to unix.Sockaddr = &unix.SockaddrInet4{Addr: addr(testenv.PodA.Addr4).As4()}
		if f.bits == 128 {
			domain, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
			to = &unix.SockaddrInet6{Addr: addr(testenv.PodA.Addr6).As16()}
		}
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return errors.Join(unix.Sendto(fd, message[:8], unix.MSG_MORE, to), unix.Sendto(fd, message[8:], 0, to))
	})
}

// R8: a real transfer through a router with a smaller MTU behind it. Without the router's errors it
// would hang; the pod must learn the MTU from them, masqueraded or not.
func TestR8PathMTU(t *testing.T) {
	for _, masquerade := range []bool{false, true} {
		t.Run(map[bool]string{false: "routed", true: "masqueraded"}[masquerade], func(t *testing.T) {
			g := newGround(t, options{})
			if masquerade {
				g.nft(g.Node, `table inet nat { chain post { type nat hook postrouting priority srcnat; oifname eth0 masquerade; }; }`)
			}
			far := g.behindNarrow(1300)
			a := g.pod(testenv.PodA, "IE", "E 198.18.7.7 tcp/443", "E 2001:db8:77::7 tcp/443")
			each(t, g, func(t *testing.T, f family) {
				dst := map[int]string{32: "198.18.7.7", 128: "2001:db8:77::7"}[f.bits]
				received := swallow(t, far, at(dst, 443))
				c, err := a.Dial("tcp", at(dst, 443), patience)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(5 * time.Second))
				if mtu := pathMTU(t, c, f); mtu != 1500 {
					t.Fatalf("MTU is %d before anything was sent", mtu)
				}
				data := make([]byte, 256<<10)
				if _, err := c.Write(data); err != nil {
					t.Fatal(err)
				}
				_ = c.(*net.TCPConn).CloseWrite()
				select {
				case n := <-received:
					if n != int64(len(data)) {
						t.Errorf("%d bytes of %d arrived", n, len(data))
					}
				case <-time.After(5 * time.Second):
					t.Fatal("the transfer hangs")
				}
				if mtu := pathMTU(t, c, f); mtu != 1300 {
					t.Errorf("MTU is %d, want 1300", mtu)
				}
			})
		})
	}
}

// behindNarrow puts a namespace behind the outside, which becomes a router to it over a narrow link.
func (g *ground) behindNarrow(mtu int) *testenv.NetNS {
	g.t.Helper()
	far := testenv.New(g.t)
	g.Ext.Sysctl(g.t, "net.ipv4.ip_forward", "1")
	g.Ext.Sysctl(g.t, "net.ipv6.conf.all.forwarding", "1")
	near, _ := testenv.Veth(g.t, g.Ext, "far", far, "eth0")
	if err := g.Ext.Netlink.LinkSetMTU(near, mtu); err != nil { // the far end announces segments for 1500
		g.t.Fatal(err)
	}
	g.Ext.Addr(g.t, "far", "198.18.7.1/24", "2001:db8:77::1/64")
	far.Addr(g.t, "eth0", "198.18.7.7/24", "2001:db8:77::7/64")
	far.Route(g.t, "default4", "198.18.7.1", "eth0")
	far.Route(g.t, "default6", "2001:db8:77::1", "eth0")
	return far
}

// swallow reads all of one connection and says how much it was.
func swallow(t *testing.T, ns *testenv.NetNS, addr string) <-chan int64 {
	t.Helper()
	var l net.Listener
	ns.MustDo(t, func() (err error) { l, err = net.Listen("tcp", addr); return err })
	t.Cleanup(func() { _ = l.Close() })
	total := make(chan int64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		total <- n
	}()
	return total
}

func pathMTU(t *testing.T, c net.Conn, f family) (mtu int) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if f.bits == 32 {
			mtu, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU)
		} else {
			mtu, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU)
		}
	})
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return mtu
}
