package packets

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// datagram is a UDP datagram of n bytes.
func datagram(src, dst string, n int) []byte { return testenv.UDP(src, dst, make([]byte, n)...) }

// all requires one fate for each of several frames, in order.
func (g *ground) all(want, what string, from, to *end, frames [][]byte) {
	g.t.Helper()
	for i, f := range frames {
		g.want(want, fmt.Sprintf("%s, fragment %d", what, i+1), from, to, f)
	}
}

// R11: fragments in order share the verdict of the first, in both directions; a first fragment that is
// denied ends what its IP ID permitted before.
func TestR11Fragments(t *testing.T) {
	g := newGround(t, options{mute: true})
	a := g.pod(testenv.PodA, "IE", "E "+v4.web+" udp/7000", "E "+v6.web+" udp/7000", "E "+v4.b, "E "+v6.b)
	b := g.pod(testenv.PodB, "")
	each(t, g, func(t *testing.T, f family) {
		first := map[int]int{32: 1480, 128: 1448}[f.bits] // as much as fits
		second := 2 * first
		cut := func(frame []byte, id uint16) [][]byte { return f.fragments(frame, id, first, second) }
		pod, server := at(f.a, 6000), at(f.web, 7000)

		g.all("allow", "1: 4000 bytes", a.end, g.ext, cut(datagram(pod, server, 4000), 1))
		g.all("allow", "2: answer", g.ext, a.end, cut(datagram(server, pod, 4000), 1))
		g.all("deny", "3: another port", a.end, g.ext, cut(datagram(pod, at(f.web, 7001), 4000), 3))
		g.all("deny", "4: from somebody else", g.ext, a.end, cut(datagram(at(f.other, 7000), pod, 4000), 4))
		g.all("deny", "5: IP ID of 1 again", a.end, g.ext, cut(datagram(pod, at(f.web, 7001), 4000), 1))
		g.all("allow", "5: and again for the server", a.end, g.ext, cut(datagram(pod, server, 4000), 1))
		for size := 1472; size <= 1476; size++ {
			frames := [][]byte{datagram(pod, server, size)}
			if size > first-8 {
				frames = f.fragments(frames[0], uint16(size), first)
			}
			g.all("allow", fmt.Sprintf("7: %d bytes", size), a.end, g.ext, frames)
		}
		// The last fragment is as short as can be.
		ping := testenv.Ping(f.a, f.b, false, 77, 1)
		ping = slices.Concat(ping[:14+f.header()+8], make([]byte, second+4-8))
		g.all("allow", "6: ping", a.end, b.end, f.fragments(relen(ping), 6, first, second))
		g.all("deny", "6: ping to the server, whose rule names a port", a.end, g.ext,
			f.fragments(retarget(f, relen(ping), f.a, f.web), 7, first, second))

		// D5: without its first, a fragment needs a rule without ports.
		later := cut(datagram(pod, server, 4000), 100)[1]
		g.want("deny fragment", "later fragment without its first", a.end, g.ext, later)
		g.want("allow", "later fragment without its first, rule without ports", a.end, b.end, cut(datagram(pod, at(f.b, 1), 4000), 100)[1])
		g.want("deny fragment", "later fragment from outside", g.ext, a.end, cut(datagram(server, pod, 4000), 100)[1])
		// The memory is of one direction, one pair, one protocol.
		g.want("allow", "first fragment", a.end, g.ext, cut(datagram(pod, server, 4000), 101)[0])
		g.want("deny fragment", "the other direction", g.ext, a.end, cut(datagram(server, pod, 4000), 101)[1])
		g.want("deny fragment", "another destination", a.end, g.ext, cut(datagram(pod, at(f.other, 7000), 4000), 101)[1])
		g.want("deny fragment", "another ID", a.end, g.ext, cut(datagram(pod, server, 4000), 102)[1])
		g.want("allow", "control: its own", a.end, g.ext, cut(datagram(pod, server, 4000), 101)[1])
	})
}

// The ends of such a test say nothing by themselves, however long it takes: an answer would be one more packet
// whose verdict is counted.
func TestMuteEnds(t *testing.T) {
	g := newGround(t, options{mute: true})
	g.Ext.Sysctl(t, "net.ipv6.icmp.ratelimit", "0")
	a := g.pod(testenv.PodA, "IE", "E "+v4.web, "E "+v6.web)
	each(t, g, func(t *testing.T, f family) {
		frame := datagram(at(f.a, 6000), at(f.web, 7000), 4000)
		g.all("allow", "fragment of the pod", a.end, g.ext, f.fragments(frame, 1, 1448, 2896))
		g.want("allow", "answer", g.ext, a.end, datagram(at(f.web, 7000), at(f.a, 6000), 10))
	})
	for reason, n := range g.counters(func(k bpf.CounterKey) bool { return k.Dir == bpf.Ingress }) {
		if r := bpf.Reason(reason); r != bpf.ReasonLink { // answers of a flow are not counted
			t.Errorf("%d packets to the pod that nobody sent: %s", n, r)
		}
	}
}

// relen sets the length field of a frame's IP header.
func relen(frame []byte) []byte {
	frame = slices.Clone(frame)
	if frame[14]>>4 == 4 {
		binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-14))
		return checksummed(frame)
	}
	binary.BigEndian.PutUint16(frame[18:], uint16(len(frame)-54))
	return frame
}

// retarget gives a frame other addresses and leaves the rest alone.
func retarget(f family, frame []byte, src, dst string) []byte {
	frame = slices.Clone(frame)
	if f.bits == 32 {
		copy(frame[26:], addr(src).AsSlice())
		copy(frame[30:], addr(dst).AsSlice())
		return checksummed(frame)
	}
	copy(frame[22:], addr(src).AsSlice())
	copy(frame[38:], addr(dst).AsSlice())
	return frame
}

// R11: fragments cannot be made to say another thing together than each says alone.
func TestR11Forged(t *testing.T) {
	g := newGround(t, options{mute: true})
	a := g.pod(testenv.PodA, "IE", "E "+v4.web+" udp/7000", "E "+v6.web+" udp/7000", "E "+v4.web+" tcp/7000", "E "+v6.web+" tcp/7000")
	b := g.pod(testenv.PodB, "")
	each(t, g, func(t *testing.T, f family) {
		udp := datagram(at(f.a, 6000), at(f.web, 7000), 400)
		other := datagram(at(f.a, 6000), at(f.web, 7001), 400)
		tcp := testenv.TCP(at(f.a, 6000), at(f.web, 7000), syn, make([]byte, 400)...)
		payload := func(frame []byte) []byte { return frame[14+f.header():] }
		for _, c := range []struct {
			want, what string
			data       []byte
		}{
			{"allow", "first fragment of UDP", f.fragment(udp, 1, 0, true, payload(udp)[:64])},
			{"allow", "its second", f.fragment(udp, 1, 64, false, payload(udp)[64:])},
			{"allow", "first fragment of TCP", f.fragment(tcp, 2, 0, true, payload(tcp)[:64])},
			{"allow", "its second", f.fragment(tcp, 2, 64, false, payload(tcp)[64:])},
			{"deny malformed", "first fragment without the ports", f.fragment(udp, 3, 0, true, nil)},
			{"deny malformed", "first fragment of TCP without the flags", f.fragment(tcp, 4, 0, true, payload(tcp)[:8])},
			{"deny malformed", "first fragment of TCP that ends in its header", f.fragment(tcp, 5, 0, true, payload(tcp)[:16])},
			{"allow", "first fragment, to be overlapped", f.fragment(tcp, 6, 0, true, payload(tcp)[:64])},
			{"deny malformed", "second at offset 8 overlaps the flags", f.fragment(tcp, 6, 8, false, payload(tcp)[8:])},
			{"deny malformed", "second at offset 16 overlaps the header", f.fragment(tcp, 6, 16, false, payload(tcp)[16:])},
			{"allow", "first fragment of UDP, to be replaced", f.fragment(udp, 7, 0, true, payload(udp)[:64])},
			{"deny policy", "another first with another port", f.fragment(other, 7, 0, true, payload(other)[:64])},
		} {
			g.want(c.want, c.what, a.end, g.ext, c.data)
		}
		g.want("deny", "what follows the denied first", a.end, g.ext, f.fragment(udp, 7, 64, false, payload(udp)[64:]))
		g.want("allow", "control: pod without policy, overlap is not its concern", b.end, g.ext,
			f.fragment(retarget(f, tcp, f.b, f.web), 8, 24, false, payload(tcp)[24:]))
		if f.bits == 128 {
			// Atomic fragments are whole packets.
			g.want("allow", "atomic fragment", a.end, g.ext, withExt(udp, 44))
			g.want("deny policy", "atomic fragment to another port", a.end, g.ext, withExt(other, 44))
			twice := withExt(udp, 44)
			g.want("deny malformed", "two fragment headers", a.end, g.ext, f.fragment(twice, 9, 0, true, payload(twice)[:64]))
		}
	})
}

// R11: what stacks themselves cut and put together again, over the hooks of two pods.
func TestR11RealStacks(t *testing.T) {
	g := newGround(t, options{both: true})
	a := g.pod(testenv.PodA, "IE", "E "+v4.b+" udp/7000", "E "+v6.b+" udp/7000")
	b := g.pod(testenv.PodB, "IE", "I "+v4.a+" udp/7000", "I "+v6.a+" udp/7000")
	each(t, g, func(t *testing.T, f family) {
		b.ListenUDP(t, at(f.b, 7000))
		b.ListenUDP(t, at(f.b, 7001))
		for _, size := range []int{1400, 1472, 1473, 1480, 4000, 20000} {
			if err := big(a.NetNS, at(f.a, 0), at(f.b, 7000), size); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
		before := g.drops()
		if err := big(a.NetNS, at(f.a, 0), at(f.b, 7001), 4000); err == nil {
			t.Error("4000 bytes to another port were answered")
		}
		if newDrops(before, g.drops()) == "" {
			t.Error("nothing was dropped")
		}
	})
	if n := g.counters(func(k bpf.CounterKey) bool { return k.Allow == 0 })[uint8(bpf.ReasonMalformed)]; n > 0 {
		t.Errorf("%d packets of stacks were taken for malformed", n)
	}
}

// big sends a datagram that has to be cut, and waits for the echo.
func big(ns *testenv.NetNS, local, remote string, size int) error {
	c, err := ns.DialFrom("udp", local, remote, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	_ = raw.Control(func(fd uintptr) { // no path MTU discovery: IPv4 cuts, too
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	})
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write(make([]byte, size)); err != nil {
		return err
	}
	n, err := c.Read(make([]byte, size+1))
	if err == nil && n != size {
		return fmt.Errorf("%d bytes came back", n)
	}
	return err
}
