package packets

import (
	"slices"

	"github.com/latch-cni/latch/shared/testenv"
)

// hostile is one kind of packet and its verdicts.
type hostile struct {
	section string
	name    string
	bits    int // 32: IPv4 only, 128: IPv6 only, 0: both
	make    func(s shot) []byte
	// For a pod under a policy that allows the peer on every port, and for one under a policy that
	// allows it on one TCP and one UDP port, to which the packets go if they have ports. A pod that no
	// policy bears on is sent everything, and sends everything.
	whole, port string
	// Of what is sent to the pod, if that has other verdicts.
	wholeIn, portIn string
}

// both is for what has the same verdict under every policy.
func (h hostile) both(verdict string) hostile {
	h.whole, h.port = verdict, verdict
	return h
}

// protocol is for what is judged as a protocol without ports.
func (h hostile) protocol() hostile {
	h.whole, h.port = pass, judged
	return h
}

var hostiles = slices.Concat(ip4Hostiles, ip6Hostiles, transportHostiles, fragmentHostiles, addressHostiles, linkHostiles)

func row(section, name string, bits int, make func(s shot) []byte) hostile {
	return hostile{section: section, name: name, bits: bits, make: make}
}

const ip4 = "IPv4 header"

var ip4Hostiles = []hostile{
	row(ip4, "no options (control)", 32, func(s shot) []byte { return s.udp(40) }).both(pass),
	row(ip4, "4 bytes of options", 32, func(s shot) []byte { return s.options(s.udp(40), 1, 1, 1, 1) }).both(pass),
	row(ip4, "40 bytes of options", 32, func(s shot) []byte { return withOptions(s.udp(40), 40) }).both(pass),
	row(ip4, "record route, timestamp, router alert", 32, func(s shot) []byte {
		return s.options(s.udp(40), 7, 7, 4, 0, 0, 0, 0, 68, 8, 5, 0, 0, 0, 0, 0, 148, 4, 0, 0)
	}).both(pass),
	row(ip4, "options that spell an allowed port, before another port", 32, func(s shot) []byte {
		return s.options(datagram(at(s.src, s.sport), at(s.dst, openPort+1), 40), 0x1b, 0x04, 0x1b, 0x58)
	}).protocol(),
	row(ip4, "loose source route", 32, func(s shot) []byte { return s.options(s.udp(40), 131, 7, 4, 203, 0, 113, 1) }).both(malformed),
	row(ip4, "strict source route", 32, func(s shot) []byte { return s.options(s.udp(40), 137, 7, 4, 203, 0, 113, 1) }).both(malformed),
	row(ip4, "source route behind other options", 32, func(s shot) []byte {
		return s.options(s.udp(40), 1, 7, 7, 4, 0, 0, 0, 0, 1, 131, 7, 4, 203, 0, 113, 1)
	}).both(malformed),
	row(ip4, "source route that has been used up", 32, func(s shot) []byte { return s.options(s.udp(40), 131, 7, 8, 203, 0, 113, 1) }).both(malformed),
	row(ip4, "option of length 0", 32, func(s shot) []byte { return s.options(s.udp(40), 7, 0, 4, 0) }).both(malformed),
	row(ip4, "option longer than the header", 32, func(s shot) []byte { return s.options(s.udp(40), 1, 1, 7, 9) }).both(malformed),
	row(ip4, "header length 0", 32, func(s shot) []byte { return set(s.udp(40), 14, 0x40) }).both(malformed),
	row(ip4, "header length 16", 32, func(s shot) []byte { return set(s.udp(40), 14, 0x44) }).both(malformed),
	row(ip4, "header longer than the packet", 32, func(s shot) []byte { return set(s.udp(2), 14, 0x4f) }).both(malformed),
	row(ip4, "header only, of TCP", 32, func(s shot) []byte { return cut(s.tcp(syn), s.head()) }).both(malformed),
	row(ip4, "cut in the header", 32, func(s shot) []byte { return s.udp(40)[:14+10] }).both(malformed),
	row(ip4, "nothing behind the ethertype", 32, func(s shot) []byte { return s.udp(40)[:14+1] }).both(malformed),
	row(ip4, "total length 0", 32, func(s shot) []byte { return sum4(s.udp(40), 16, 0, 0) }).both(malformed),
	row(ip4, "total length 19", 32, func(s shot) []byte { return sum4(s.udp(40), 16, 0, 19) }).both(malformed),
	row(ip4, "total length beyond the frame", 32, func(s shot) []byte { return sum4(s.udp(40), 16, 0, 69) }).both(malformed),
	row(ip4, "total length that cuts the ports off", 32, func(s shot) []byte { return sum4(s.udp(40), 16, 0, 23) }).both(malformed),
	row(ip4, "bytes behind the packet", 32, func(s shot) []byte { return append(s.udp(40), make([]byte, 30)...) }).both(pass),
	row(ip4, "wrong checksum of the header", 32, func(s shot) []byte { return set(s.udp(40), 24, 0x12, 0x34) }).both(pass),
	row(ip4, "reserved flag", 32, func(s shot) []byte { return sum4(s.udp(40), 20, 0x80, 0) }).both(pass),
	row(ip4, "version 6", 32, func(s shot) []byte { return set(s.udp(40), 14, 0x65) }).both(malformed),
	row(ip4, "version 0", 32, func(s shot) []byte { return set(s.udp(40), 14, 0x05) }).both(malformed),
}

const ip6 = "IPv6 header"

// ext is an extension header of a kind with claimed length in units of 8, in front of a UDP datagram.
func ext(s shot, kind byte, at int, values ...byte) []byte {
	return set(withExt(s.udp(40), kind), 54+at, values...)
}

var ip6Hostiles = []hostile{
	row(ip6, "no extension header (control)", 128, func(s shot) []byte { return s.udp(40) }).both(pass),
	row(ip6, "hop-by-hop options", 128, func(s shot) []byte { return withExt(s.udp(40), 0) }).both(pass),
	row(ip6, "destination options", 128, func(s shot) []byte { return withExt(s.udp(40), 60) }).both(pass),
	row(ip6, "authentication header", 128, func(s shot) []byte { return withExt(s.udp(40), 51) }).both(pass),
	row(ip6, "routing header with no segments left", 128, func(s shot) []byte { return withExt(s.udp(40), 43) }).both(pass),
	row(ip6, "routing header with a segment left", 128, func(s shot) []byte { return ext(s, 43, 3, 1) }).both(malformed),
	row(ip6, "eight extension headers", 128, func(s shot) []byte { return withExt(s.udp(40), 0, 60, 60, 60, 60, 60, 60, 60) }).both(pass),
	row(ip6, "nine extension headers", 128, func(s shot) []byte { return withExt(s.udp(40), 0, 60, 60, 60, 60, 60, 60, 60, 60) }).both(malformed),
	row(ip6, "another port behind extension headers", 128, func(s shot) []byte {
		return withExt(datagram(at(s.src, s.sport), at(s.dst, openPort+1), 40), 0, 60)
	}).protocol(),
	row(ip6, "extension header longer than the packet", 128, func(s shot) []byte { return ext(s, 60, 1, 200) }).both(malformed),
	row(ip6, "extension header that swallows the ports", 128, func(s shot) []byte { return ext(s, 60, 1, 6) }).both(malformed),
	row(ip6, "packet ends in an extension header", 128, func(s shot) []byte { return cut(withExt(s.udp(40), 60), 54+4) }).both(malformed),
	row(ip6, "packet ends behind an extension header", 128, func(s shot) []byte { return cut(withExt(s.udp(40), 60), 54+8) }).both(malformed),
	row(ip6, "no next header", 128, func(s shot) []byte { return s.proto(59) }).protocol(),
	row(ip6, "unknown next headers, never walked", 128, func(s shot) []byte { return s.proto(253) }).protocol(),
	row(ip6, "mobility header", 128, func(s shot) []byte { return s.proto(135) }).protocol(),
	row(ip6, "host identity header", 128, func(s shot) []byte { return s.proto(139) }).protocol(),
	row(ip6, "shim6 header", 128, func(s shot) []byte { return s.proto(140) }).protocol(),
	row(ip6, "payload length 0", 128, func(s shot) []byte { return set(s.udp(40), 18, 0, 0) }).both(malformed),
	row(ip6, "jumbogram", 128, func(s shot) []byte {
		return set(ext(s, 0, 2, 0xc2, 4, 0, 1, 0, 0), 18, 0, 0)
	}).both(malformed),
	row(ip6, "payload length beyond the frame", 128, func(s shot) []byte { return set(s.udp(40), 18, 0, 49) }).both(malformed),
	row(ip6, "payload length that cuts the ports off", 128, func(s shot) []byte { return set(s.udp(40), 18, 0, 3) }).both(malformed),
	row(ip6, "cut in the header", 128, func(s shot) []byte { return s.udp(40)[:14+20] }).both(malformed),
	row(ip6, "bytes behind the packet", 128, func(s shot) []byte { return append(s.udp(40), make([]byte, 30)...) }).both(pass),
	row(ip6, "version 4", 128, func(s shot) []byte { return set(s.udp(40), 14, 0x45) }).both(malformed),
}

const transport = "Transport header"

var transportHostiles = []hostile{
	row(transport, "GRE", 0, func(s shot) []byte { return s.proto(47) }).protocol(),
	row(transport, "IPv4 in IP", 0, func(s shot) []byte { return s.proto(4) }).protocol(),
	row(transport, "IPv6 in IP", 0, func(s shot) []byte { return s.proto(41) }).protocol(),
	row(transport, "ESP", 0, func(s shot) []byte { return s.proto(50) }).protocol(),
	row(transport, "AH", 32, func(s shot) []byte { return s.proto(51) }).protocol(),
	row(transport, "UDP-Lite", 0, func(s shot) []byte { return s.proto(136) }).protocol(),
	row(transport, "protocol 255", 0, func(s shot) []byte { return s.proto(255) }).protocol(),
	row(transport, "ICMP of the other family", 0, func(s shot) []byte { return s.proto(map[int]uint8{32: 58, 128: 1}[s.bits]) }).protocol(),
	row(transport, "TCP of 12 bytes", 0, func(s shot) []byte { return cut(s.tcp(syn), s.head()+12) }).both(malformed),
	row(transport, "TCP of 19 bytes", 0, func(s shot) []byte { return cut(s.tcp(syn), s.head()+19) }).both(malformed),
	row(transport, "TCP header of 16 bytes", 0, func(s shot) []byte { return set(s.tcp(syn), s.head()+12, 0x40) }).both(malformed),
	row(transport, "TCP header longer than the packet", 0, func(s shot) []byte { return set(s.tcp(syn), s.head()+12, 0xf0) }).both(malformed),
	row(transport, "UDP of 4 bytes", 0, func(s shot) []byte { return cut(s.udp(0), s.head()+4) }).both(malformed),
	row(transport, "UDP whose length lies", 0, func(s shot) []byte { return set(s.udp(40), s.head()+4, 0, 200) }).both(pass),
	row(transport, "SCTP of 8 bytes", 0, func(s shot) []byte { return cut(testenv.SCTP(at(s.src, s.sport), at(s.dst, openPort)), s.head()+8) }).both(malformed),
	row(transport, "ICMP of 4 bytes", 0, func(s shot) []byte { return cut(s.icmp(8, 128), s.head()+4) }).both(malformed),
	row(transport, "echo request", 0, func(s shot) []byte { return s.icmp(8, 128) }).protocol(),
	row(transport, "echo reply that nobody asked for", 0, func(s shot) []byte { return s.icmp(0, 129) }).protocol(),
	row(transport, "redirect", 0, func(s shot) []byte { return s.icmp(5, 137) }).protocol(),
	row(transport, "ICMP of an unknown type", 0, func(s shot) []byte { return s.icmp(200, 200) }).protocol(),
	row(transport, "SYN and FIN", 0, func(s shot) []byte { return s.tcp(syn | fin) }).both(pass),
	row(transport, "SYN and RST", 0, func(s shot) []byte { return s.tcp(syn | rst) }).both(pass),
	row(transport, "no TCP flags", 0, func(s shot) []byte { return s.tcp(0) }).both(pass),
	row(transport, "source port 0", 0, func(s shot) []byte { s.sport = 0; return s.udp(40) }).both(pass),
	row(transport, "destination port 0", 0, func(s shot) []byte { return datagram(at(s.src, s.sport), at(s.dst, 0), 40) }).protocol(),
}

const fragmented = "Fragments"

var fragmentHostiles = []hostile{
	row(fragmented, "first fragment", 0, func(s shot) []byte {
		u := s.udp(400)
		return s.fragment(u, uint16(s.sport), 0, true, u[s.head():s.head()+64])
	}).both(pass),
	row(fragmented, "first fragment without ports", 0, func(s shot) []byte { return s.fragment(s.udp(400), uint16(s.sport), 0, true, nil) }).both(malformed),
	row(fragmented, "first fragment that ends in the TCP header", 0, func(s shot) []byte {
		t := s.tcp(syn)
		return s.fragment(t, uint16(s.sport), 0, true, t[s.head():s.head()+8])
	}).both(malformed),
	row(fragmented, "later fragment over the TCP header", 0, func(s shot) []byte {
		return s.fragment(s.tcp(syn), uint16(s.sport), 16, false, make([]byte, 64))
	}).both(malformed),
	func() hostile {
		h := row(fragmented, "later fragment whose first was not seen", 0, func(s shot) []byte {
			return s.fragment(s.udp(400), uint16(s.sport), 64, false, make([]byte, 64))
		})
		h.whole, h.port = pass, fragment
		return h
	}(),
	row(fragmented, "only fragment of its packet", 128, func(s shot) []byte { return withExt(s.udp(40), 44) }).both(pass),
	row(fragmented, "fragment header in a fragment", 128, func(s shot) []byte {
		t := withExt(s.udp(40), 44)
		return s.fragment(t, uint16(s.sport), 0, true, t[s.head():])
	}).both(malformed),
}
