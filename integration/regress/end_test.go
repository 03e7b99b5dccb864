package regress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/testenv"
)

// end is a place that packets leave from and arrive at: a pod, or the outside.
type end struct {
	name     string
	ns       *testenv.NetNS
	mac, via net.HardwareAddr // of the frames that it sends
	out      *testenv.Injector
	in       catcher
}

func (g *ground) newEnd(name string, ns *testenv.NetNS, dev string, via net.HardwareAddr) *end {
	g.t.Helper()
	return &end{
		name: name, ns: ns, mac: ns.Link(g.t, dev).Attrs().HardwareAddr, via: via,
		out: ns.Injector(g.t, dev),
		in:  ns.Capture(g.t, dev, func(f []byte) bool { return bytes.Contains(f, magic) }),
	}
}

// magic starts the mark that tells a packet of a table from all others.
var magic = []byte{0x1a, 0x7c, 0x0f, 0xfe}

func markOf(n uint32) []byte { return binary.BigEndian.AppendUint32(bytes.Clone(magic), n) }

// packet is one crafted packet.
type packet struct {
	from, to     string // names or addresses, for messages
	src, dst     netip.Addr
	proto        string // tcp (SYN), ack (TCP without SYN), udp, sctp (INIT), icmp (echo request), gre
	sport, dport uint16
	mark         uint32
}

func (p packet) String() string {
	if p.proto == "icmp" || p.proto == "gre" {
		return fmt.Sprintf("%s > %s %s (%s > %s)", p.from, p.to, p.proto, p.src, p.dst)
	}
	return fmt.Sprintf("%s:%d > %s %s/%d (%s > %s)", p.from, p.sport, p.to, p.proto, p.dport, p.src, p.dst)
}

// frame is the packet with the mark as its payload.
func (p packet) frame() []byte {
	mark := markOf(p.mark)
	src, dst := netip.AddrPortFrom(p.src, p.sport).String(), netip.AddrPortFrom(p.dst, p.dport).String()
	switch p.proto {
	case "tcp":
		return testenv.TCP(src, dst, testenv.SYN, mark...)
	case "ack":
		return testenv.TCP(src, dst, testenv.ACK, mark...)
	case "udp":
		return testenv.UDP(src, dst, mark...)
	case "sctp":
		return testenv.Raw(p.src, p.dst, 132, p.sctpInit(mark))
	case "gre":
		return testenv.Raw(p.src, p.dst, 47, append([]byte{0, 0, 8, 0}, mark...))
	case "icmp":
		echo := []byte{byte(p.mark >> 8), byte(p.mark), 0, 1}
		if p.src.Is6() {
			return testenv.ICMP6(p.src, p.dst, layers.ICMPv6TypeEchoRequest, 0, append(echo, mark...))
		}
		icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: uint16(p.mark), Seq: 1}
		return testenv.Build(testenv.IP(p.src, p.dst, layers.IPProtocolICMPv4), icmp, gopacket.Payload(mark))
	}
	panic(fmt.Sprintf("regress: protocol %q", p.proto))
}

// sctpInit is an INIT chunk, followed by the mark as a parameter of an unknown type.
func (p packet) sctpInit(mark []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, p.sport)
	b = binary.BigEndian.AppendUint16(b, p.dport)
	b = append(b, make([]byte, 8)...) // verification tag of an INIT is 0; the checksum is not computed
	parameter := append([]byte{0x80, 0x1a, 0, byte(4 + len(mark))}, mark...)
	b = append(b, 1, 0, 0, byte(20+len(parameter)))
	b = append(b, 0, 0, 0, 1 /* tag */, 0, 1, 0, 0 /* window */, 0, 1, 0, 1 /* streams */, 0, 0, 0, 1)
	return append(b, parameter...)
}

// send puts the packet on the wire at its end.
func (g *ground) send(p packet) error {
	e := g.ends[p.from]
	return e.out.Send(testenv.WithMAC(p.frame(), e.mac, e.via))
}

// arrived is how often packets with each mark have come in at their ends.
func (g *ground) arrived(to string) map[uint32]int {
	seen := map[uint32]int{}
	for _, f := range g.ends[to].in.Frames() {
		i := bytes.Index(f, magic) + len(magic)
		if len(f) >= i+4 {
			seen[binary.BigEndian.Uint32(f[i:])]++
		}
	}
	return seen
}

// catcher keeps frames: a testenv.Capture is one.
type catcher interface {
	Frames() [][]byte
}

// sniffer catches marked frames on whatever interfaces a namespace has and will have.
type sniffer struct {
	mu     sync.Mutex
	frames [][]byte
}

func (s *sniffer) Frames() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.frames)
}

func (g *ground) sniff(ns *testenv.NetNS) *sniffer {
	g.t.Helper()
	var fd int
	ns.MustDo(g.t, func() (err error) {
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // network byte order
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		if err != nil {
			return err
		}
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}))
	})
	s, stop, done := &sniffer{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 2048); ; {
			n, _, err := unix.Recvfrom(fd, b, 0)
			select {
			case <-stop:
				return
			default:
			}
			if err == nil && bytes.Contains(b[:n], magic) {
				s.mu.Lock()
				s.frames = append(s.frames, bytes.Clone(b[:n]))
				s.mu.Unlock()
			}
		}
	}()
	g.t.Cleanup(func() {
		close(stop)
		<-done
		_ = unix.Close(fd)
	})
	return s
}
