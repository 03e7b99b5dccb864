package testenv

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// TCPFlags are the flags of a TCP header.
type TCPFlags uint8

// Flags of a TCP header.
const (
	FIN TCPFlags = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Hardware addresses of frames that WithMAC has not changed.
var (
	defaultSrcMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	defaultDstMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// The functions below make Ethernet frames. Addresses are written "10.0.0.1:1024" or
// "[fd00::1]:1024", without the port where the protocol has none; they panic on anything else, since
// they are constants of tests.

// TCP makes a TCP segment.
func TCP(src, dst string, flags TCPFlags, payload ...byte) []byte {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(s.Port()), DstPort: layers.TCPPort(d.Port()), Seq: 1000, Ack: 2000, Window: 65535,
		FIN: flags&FIN != 0, SYN: flags&SYN != 0, RST: flags&RST != 0, PSH: flags&PSH != 0, ACK: flags&ACK != 0,
	}
	return Build(IP(s.Addr(), d.Addr(), layers.IPProtocolTCP), tcp, gopacket.Payload(payload))
}

// UDP makes a UDP datagram.
func UDP(src, dst string, payload ...byte) []byte {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	udp := &layers.UDP{SrcPort: layers.UDPPort(s.Port()), DstPort: layers.UDPPort(d.Port())}
	return Build(IP(s.Addr(), d.Addr(), layers.IPProtocolUDP), udp, gopacket.Payload(payload))
}

// SCTP makes an SCTP packet with a COOKIE-ACK chunk.
func SCTP(src, dst string) []byte {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	b := binary.BigEndian.AppendUint16(nil, s.Port())
	b = binary.BigEndian.AppendUint16(b, d.Port())
	b = append(b, 0, 0, 0, 1 /* tag */, 0, 0, 0, 0 /* checksum, not computed */, 11, 0, 0, 4)
	return Raw(s.Addr(), d.Addr(), 132, b)
}

// Raw makes an IP packet of any protocol.
func Raw(src, dst netip.Addr, protocol uint8, payload []byte) []byte {
	return Build(IP(src, dst, layers.IPProtocol(protocol)), gopacket.Payload(payload))
}

// Ping makes an echo request or reply.
func Ping(src, dst string, reply bool, id, seq uint16) []byte {
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	if s.Is4() {
		kind := uint8(layers.ICMPv4TypeEchoRequest)
		if reply {
			kind = layers.ICMPv4TypeEchoReply
		}
		return Build(IP(s, d, layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, 0), Id: id, Seq: seq})
	}
	kind := uint8(layers.ICMPv6TypeEchoRequest)
	if reply {
		kind = layers.ICMPv6TypeEchoReply
	}
	body := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, id), seq)
	return ICMP6(s, d, kind, 0, body)
}

// TooBig makes the ICMP error that says the quoted frame did not fit: fragmentation needed, or packet
// too big. dst is the sender of the quoted packet.
func TooBig(src, dst string, mtu uint16, quoted []byte) []byte {
	return icmpError(src, dst, quoted, uint8(layers.ICMPv4TypeDestinationUnreachable), layers.ICMPv4CodeFragmentationNeeded,
		uint8(layers.ICMPv6TypePacketTooBig), 0, mtu)
}

// Unreachable makes the ICMP error that says the port of the quoted frame is not reachable.
func Unreachable(src, dst string, quoted []byte) []byte {
	return icmpError(src, dst, quoted, uint8(layers.ICMPv4TypeDestinationUnreachable), layers.ICMPv4CodePort,
		uint8(layers.ICMPv6TypeDestinationUnreachable), layers.ICMPv6CodePortUnreachable, 0)
}

func icmpError(src, dst string, quoted []byte, type4, code4, type6, code6 uint8, mtu uint16) []byte {
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	quote := quoted[14:]
	if s.Is4() {
		quote = quote[:min(len(quote), 20+8)]
		icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(type4, code4), Seq: mtu}
		return Build(IP(s, d, layers.IPProtocolICMPv4), icmp, gopacket.Payload(quote))
	}
	quote = quote[:min(len(quote), 1232)]
	return ICMP6(s, d, type6, code6, append([]byte{0, 0, byte(mtu >> 8), byte(mtu)}, quote...))
}

// ICMP6 makes any ICMPv6 message; body is what follows the checksum.
func ICMP6(src, dst netip.Addr, kind, code uint8, body []byte) []byte {
	ip := IP(src, dst, layers.IPProtocolICMPv6)
	if len(body) >= 16 && kind >= 133 && kind <= 137 { // NDP is taken with this hop limit only
		ip.(*layers.IPv6).HopLimit = 255
	}
	return Build(ip, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, code)}, gopacket.Payload(body))
}

// IP makes an IP header for Build.
func IP(src, dst netip.Addr, protocol layers.IPProtocol) gopacket.SerializableLayer {
	if src.Is4() != dst.Is4() {
		panic(fmt.Sprintf("testenv: packet from %s to %s", src, dst))
	}
	if src.Is4() {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	}
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
}

// Build makes a frame of layers from IP upwards, with an Ethernet header before them (unless the first
// layer is one), and with correct lengths and checksums.
func Build(stack ...gopacket.SerializableLayer) []byte {
	var network gopacket.NetworkLayer
	kind := layers.EthernetType(0)
	for _, l := range stack {
		switch l := l.(type) {
		case *layers.IPv4:
			network, kind = l, layers.EthernetTypeIPv4
		case *layers.IPv6:
			network, kind = l, layers.EthernetTypeIPv6
		case *layers.ARP:
			kind = layers.EthernetTypeARP
		case interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}:
			if err := l.SetNetworkLayerForChecksum(network); err != nil {
				panic(fmt.Sprintf("testenv: build packet: %v", err))
			}
		}
	}
	if _, ok := stack[0].(*layers.Ethernet); !ok {
		eth := &layers.Ethernet{SrcMAC: defaultSrcMAC, DstMAC: defaultDstMAC, EthernetType: kind}
		stack = append([]gopacket.SerializableLayer{eth}, stack...)
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		panic(fmt.Sprintf("testenv: build packet: %v", err))
	}
	return b.Bytes()
}

// WithMAC returns the frame with other hardware addresses.
func WithMAC(frame []byte, src, dst net.HardwareAddr) []byte {
	out := append([]byte(nil), frame...)
	copy(out[0:6], dst)
	copy(out[6:12], src)
	return out
}
