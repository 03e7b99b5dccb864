package packets

import (
	"github.com/latch-cni/latch/shared/testenv"
)

const addresses = "Addresses"

// group is for what is sent to an address that no rule names: what the pod sends is judged by it, what
// the pod is sent by its source.
func group(h hostile, wholeIn, portIn string) hostile {
	h.whole, h.port, h.wholeIn, h.portIn = judged, judged, wholeIn, portIn
	return h
}

var addressHostiles = []hostile{
	group(row(addresses, "multicast", 0, func(s shot) []byte { return s.to("224.0.0.251", "ff02::fb").udp(40) }), pass, pass),
	group(row(addresses, "routed multicast", 0, func(s shot) []byte { return s.to("239.1.2.3", "ff0e::1:3").udp(40) }), pass, pass),
	group(row(addresses, "broadcast", 32, func(s shot) []byte { return s.to("255.255.255.255", "").udp(40) }), pass, pass),
	row(addresses, "DHCP", 0, func(s shot) []byte {
		d := s.from("0.0.0.0", "fe80::68").to("255.255.255.255", "ff02::1:2")
		ports := map[int][2]int{32: {68, 67}, 128: {546, 547}}[s.bits]
		return datagram(at(d.src, ports[0]), at(d.dst, ports[1]), 240)
	}).both(judged),
	row(addresses, "multicast membership", 32, func(s shot) []byte {
		return testenv.Raw(addr(s.src), addr("224.0.0.22"), 2, []byte{0x22, 0, 0xf9, 1, 0, 0, 0, 1, 4, 0, 0, 0, 224, 0, 0, 251})
	}).protocol().outward(judged),
	row(addresses, "loopback address as the peer", 0, func(s shot) []byte { return s.peer("127.0.0.1", "::1").udp(40) }).both(judged),
	row(addresses, "unspecified address as the peer", 0, func(s shot) []byte { return s.peer("0.0.0.0", "::").udp(40) }).both(judged),
	row(addresses, "the pod's own address as the peer", 0, func(s shot) []byte { return s.peer(s.family.a, s.family.a).udp(40) }).both(judged),
	row(addresses, "IPv4-mapped address as the peer", 128, func(s shot) []byte { return s.peer("", "::ffff:198.51.100.7").udp(40) }).both(judged),
}

// outward sets the verdicts of what the pod sends apart.
func (h hostile) outward(verdict string) hostile {
	h.wholeIn, h.portIn = h.whole, h.port
	h.whole, h.port = verdict, verdict
	return h
}

// peer puts another address in the place of the outside's.
func (s shot) peer(v4, v6 string) shot {
	if s.src == s.web {
		return s.from(v4, v6)
	}
	return s.to(v4, v6)
}

const link = "Link"

var linkHostiles = []hostile{
	row(link, "ARP", 32, func(s shot) []byte { return s.arp() }).both(pass),
	row(link, "neighbour solicitation", 128, func(s shot) []byte { return s.peer("", "fe80::1").discovery(135, 255) }).both(pass),
	row(link, "neighbour solicitation that was forwarded", 128, func(s shot) []byte { return s.discovery(135, 254) }).protocol(),
	row(link, "router advertisement", 128, func(s shot) []byte { return s.peer("", "fe80::1").discovery(134, 255) }).both(pass),
	row(link, "multicast listener report", 128, func(s shot) []byte { return s.from("", "fe80::11").to("", "ff02::16").discovery(143, 1) }).both(pass),
	row(link, "multicast listener report that was forwarded", 128, func(s shot) []byte { return s.discovery(143, 2) }).protocol(),
	row(link, "priority tag", 0, func(s shot) []byte { return tagged(s.udp(40), 0) }).both(pass),
	row(link, "priority tag, another port", 0, func(s shot) []byte { return tagged(datagram(at(s.src, s.sport), at(s.dst, openPort+1), 40), 0xe000) }).protocol(),
	row(link, "VLAN 5", 0, func(s shot) []byte { return tagged(s.udp(40), 5) }).both(foreign),
	row(link, "two priority tags", 0, func(s shot) []byte { return tagged(s.udp(40), 0, 0) }).both(pass),
	row(link, "two priority tags, another port", 0, func(s shot) []byte {
		return tagged(datagram(at(s.src, s.sport), at(s.dst, openPort+1), 40), 0, 0)
	}).protocol(),
	row(link, "VLAN 5 in a priority tag", 0, func(s shot) []byte { return tagged(s.udp(40), 0, 5) }).both(foreign),
	row(link, "priority tag in VLAN 5", 0, func(s shot) []byte { return tagged(s.udp(40), 5, 0) }).both(foreign),
	row(link, "four priority tags", 0, func(s shot) []byte { return tagged(s.udp(40), 0, 0, 0, 0) }).both(foreign),
	row(link, "MPLS", 0, func(s shot) []byte { return ethertype(0x8847) }).both(foreign),
	row(link, "PPPoE session", 0, func(s shot) []byte { return ethertype(0x8864) }).both(foreign),
	row(link, "LLDP", 0, func(s shot) []byte { return ethertype(0x88cc) }).both(foreign),
	row(link, "EAPOL", 0, func(s shot) []byte { return ethertype(0x888e) }).both(foreign),
	row(link, "MACsec", 0, func(s shot) []byte { return ethertype(0x88e5) }).both(foreign),
	row(link, "IPX", 0, func(s shot) []byte { return ethertype(0x8137) }).both(foreign),
	row(link, "802.3 with a length", 0, func(s shot) []byte { return ethertype(50) }).both(foreign),
	row(link, "ethertype of the loopback test", 0, func(s shot) []byte { return ethertype(0x9000) }).both(foreign),
}
