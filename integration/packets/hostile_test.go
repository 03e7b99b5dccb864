package packets

import (
	"encoding/binary"
	"slices"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/latch-cni/latch/shared/testenv"
)

// shot is what a hostile packet is made of: the ends, and a source port of its own.
type shot struct {
	family
	src, dst string
	sport    int
}

func (s shot) udp(n int) []byte { return datagram(at(s.src, s.sport), at(s.dst, openPort), n) }
func (s shot) tcp(flags testenv.TCPFlags) []byte {
	return testenv.TCP(at(s.src, s.sport), at(s.dst, openPort), flags, 1, 2, 3, 4, 5, 6, 7, 8)
}
func (s shot) proto(n uint8) []byte {
	return testenv.Raw(addr(s.src), addr(s.dst), n, s.udp(40)[14+s.header():]) // what follows looks like UDP
}
func (s shot) head() int { return 14 + s.header() }

// to is the shot for another destination.
func (s shot) to(v4, v6 string) shot {
	s.dst = map[int]string{32: v4, 128: v6}[s.bits]
	return s
}

func (s shot) from(v4, v6 string) shot {
	s.src = map[int]string{32: v4, 128: v6}[s.bits]
	return s
}

// set changes bytes of a frame.
func set(frame []byte, offset int, values ...byte) []byte {
	frame = slices.Clone(frame)
	copy(frame[offset:], values)
	return frame
}

// sum4 is set for an IPv4 header, whose checksum it mends.
func sum4(frame []byte, offset int, values ...byte) []byte {
	return checksummed(set(frame, offset, values...))
}

// cut shortens the packet of a frame, and says so in its header.
func cut(frame []byte, n int) []byte { return relen(frame[:n]) }

// options puts options into an IPv4 header.
func (s shot) options(frame []byte, opts ...byte) []byte {
	for len(opts)%4 != 0 {
		opts = append(opts, 0)
	}
	return sum4(withOptions(frame, len(opts)), 34, opts...)
}

// tagged puts VLAN tags in front of the ethertype.
func tagged(frame []byte, vids ...uint16) []byte {
	var tags []byte
	for _, vid := range vids {
		tags = append(tags, 0x81, 0x00, byte(vid>>8), byte(vid))
	}
	return slices.Insert(slices.Clone(frame), 12, tags...)
}

// ethertype makes a frame that is not IP.
func ethertype(kind uint16) []byte {
	frame := make([]byte, 64)
	binary.BigEndian.PutUint16(frame[12:], kind)
	for i := 14; i < len(frame); i++ {
		frame[i] = byte(i)
	}
	return frame
}

func (s shot) arp() []byte {
	mac := make([]byte, 6)
	return testenv.Build(
		&layers.Ethernet{SrcMAC: mac, DstMAC: mac, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 1,
			SourceHwAddress: mac, SourceProtAddress: addr(s.src).AsSlice(), DstHwAddress: mac, DstProtAddress: addr(s.dst).AsSlice()})
}

func (s shot) icmp(kind4, kind6 uint8) []byte {
	body := []byte{byte(s.sport >> 8), byte(s.sport), 0, 1, 1, 2, 3, 4}
	if s.bits == 128 {
		return testenv.ICMP6(addr(s.src), addr(s.dst), kind6, 0, body)
	}
	icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind4, 0), Id: uint16(s.sport), Seq: 1}
	return testenv.Build(testenv.IP(addr(s.src), addr(s.dst), layers.IPProtocolICMPv4), icmp, gopacket.Payload(body))
}

// discovery is an ICMPv6 message of the link with a hop limit.
func (s shot) discovery(kind, hops uint8) []byte {
	frame := testenv.ICMP6(addr(s.src), addr(s.dst), kind, 0, make([]byte, 20))
	frame[21] = hops
	return frame
}

const (
	// openPort is what the third kind of policy allows, for TCP and UDP.
	openPort = 7000

	pass      = "pass"
	judged    = "drop: policy"
	malformed = "drop: malformed"
	fragment  = "drop: fragment"
	foreign   = "drop: ethertype"
)
