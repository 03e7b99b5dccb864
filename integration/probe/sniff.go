package probe

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Packet is what a Sniffer tells of one packet. The ports of a protocol that is none of TCP, UDP, SCTP
// are the first two words behind the IP header; those of ICMP are the identifier and 0.
type Packet struct {
	Src, Dst netip.AddrPort
	Proto    Proto // ICMP also for ICMPv6
	TCPFlags uint8
	ICMPType uint8
	Length   int // of the packet, IP header included
}

// Opens says whether the packet is a request and no answer: of TCP, a SYN without ACK; of ICMP, an
// echo request.
func (p Packet) Opens() bool {
	switch {
	case p.Proto == TCP:
		return p.TCPFlags&0x12 == 0x02
	case p.Proto == ICMP && p.Src.Addr().Is4():
		return p.ICMPType == icmp4Echo
	case p.Proto == ICMP:
		return p.ICMPType == icmp6Echo
	}
	return true
}

// Sniffer sees every packet that a namespace receives for one address, before its sockets do.
type Sniffer struct {
	fd   int
	addr netip.Addr
	buf  [128]byte
}

// OpenSniffer starts sniffing for addr in ns. Packets wait in the kernel until Drain.
func OpenSniffer(ns Namespace, addr netip.Addr) (*Sniffer, error) {
	s := &Sniffer{fd: -1, addr: addr}
	err := ns.Do(func() (err error) {
		// No protocol yet: nothing must be queued before the filter is in place.
		s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	if err := s.start(); err != nil {
		s.Close()
		return nil, fmt.Errorf("sniff for %v: %w", addr, err)
	}
	return s, nil
}

func (s *Sniffer) start() error {
	filter := destinationFilter(s.addr)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fmt.Errorf("attach filter: %w", err)
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes); err != nil {
		return fmt.Errorf("grow receive buffer: %w", err)
	}
	proto := uint16(unix.ETH_P_IP)
	if s.addr.Is6() {
		proto = unix.ETH_P_IPV6
	}
	// Bound to an EtherType, a packet socket sees incoming packets only.
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: proto<<8 | proto>>8}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// Drain hands over every packet received so far and says how many there were.
func (s *Sniffer) Drain(visit func(Packet)) (int, error) {
	for n := 0; ; n++ {
		size, _, err := unix.Recvfrom(s.fd, s.buf[:], unix.MSG_TRUNC)
		if err == unix.EAGAIN {
			return n, nil
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, fmt.Errorf("read packet for %v: %w", s.addr, err)
		}
		if p, ok := parsePacket(s.buf[:min(size, len(s.buf))]); ok {
			p.Length = size
			visit(p)
		}
	}
}

// Dropped says how many packets the kernel could not queue since the last call: with any, an absent
// packet proves nothing.
func (s *Sniffer) Dropped() (uint32, error) {
	stats, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("read packet statistics: %w", err)
	}
	return stats.Drops, nil
}

// Close ends sniffing.
func (s *Sniffer) Close() {
	_ = unix.Close(s.fd)
}

// destinationFilter is a classic BPF program that keeps packets to one address. Offset 0 of a
// cooked packet socket is the network header.
func destinationFilter(a netip.Addr) []unix.SockFilter {
	offset, raw := uint32(16), a.AsSlice()
	if a.Is6() {
		offset = 24
	}
	words := len(raw) / 4
	var f []unix.SockFilter
	for w := range words {
		f = append(f,
			unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset + uint32(4*w)},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
				Jf: uint8(2*(words-w) - 1), K: binary.BigEndian.Uint32(raw[4*w:])})
	}
	return append(f,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0})
}

// parsePacket reads the addresses and ports of a packet without IPv6 extension headers.
func parsePacket(b []byte) (Packet, bool) {
	var p Packet
	var src, dst netip.Addr
	var l4 []byte
	switch {
	case len(b) >= 20 && b[0]>>4 == 4 && len(b) >= int(b[0]&15)*4:
		src, dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		p.Proto, l4 = Proto(b[9]), b[int(b[0]&15)*4:]
	case len(b) >= 40 && b[0]>>4 == 6:
		src, dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		p.Proto, l4 = Proto(b[6]), b[40:]
	default:
		return p, false
	}
	if src.Is6() && p.Proto == unix.IPPROTO_ICMPV6 {
		p.Proto = ICMP
	}
	var sport, dport uint16
	switch {
	case p.Proto.hasPorts() && len(l4) >= 4:
		sport, dport = binary.BigEndian.Uint16(l4), binary.BigEndian.Uint16(l4[2:])
	case p.Proto == ICMP && len(l4) >= 8:
		p.ICMPType, sport = l4[0], binary.BigEndian.Uint16(l4[4:])
	}
	if p.Proto == TCP && len(l4) >= 14 {
		p.TCPFlags = l4[13]
	}
	p.Src, p.Dst = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport)
	return p, true
}
