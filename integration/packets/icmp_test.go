package packets

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/latch-cni/latch/shared/testenv"
)

const (
	syn = testenv.SYN
	ack = testenv.ACK
	fin = testenv.FIN
	rst = testenv.RST
)

// segment is a TCP segment that a stack takes for one of its connection.
func segment(src, dst string, flags testenv.TCPFlags, seq, next uint32, payload ...byte) []byte {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	tcp := &layers.TCP{SrcPort: layers.TCPPort(s.Port()), DstPort: layers.TCPPort(d.Port()), Seq: seq, Ack: next, Window: 65535,
		FIN: flags&fin != 0, SYN: flags&syn != 0, RST: flags&rst != 0, PSH: flags&testenv.PSH != 0, ACK: flags&ack != 0}
	return testenv.Build(testenv.IP(s.Addr(), d.Addr(), layers.IPProtocolTCP), tcp, gopacket.Payload(payload))
}

// icmpKind is a message by type and code in both families.
type icmpKind struct{ kind4, code4, kind6, code6 uint8 }

var (
	tooBig       = icmpKind{3, 4, 2, 0}
	unreachable  = icmpKind{3, 3, 1, 4}
	prohibited   = icmpKind{3, 13, 1, 1}
	timeExceeded = icmpKind{11, 0, 3, 0}
	parameter    = icmpKind{12, 0, 4, 1}
	redirect     = icmpKind{5, 1, 137, 0}
)

// icmpError is a message that quotes the beginning of a frame's IP packet.
func (f family) icmpError(k icmpKind, src, dst string, rest uint32, quoted []byte, n int) []byte {
	quote := quoted[14:]
	quote = quote[:min(n, len(quote))]
	if f.bits == 32 {
		icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(k.kind4, k.code4), Id: uint16(rest >> 16), Seq: uint16(rest)}
		return testenv.Build(testenv.IP(addr(src), addr(dst), layers.IPProtocolICMPv4), icmp, gopacket.Payload(quote))
	}
	return testenv.ICMP6(addr(src), addr(dst), k.kind6, k.code6, append(binary.BigEndian.AppendUint32(nil, rest), quote...))
}

// header is the length of an IP header without options.
func (f family) header() int {
	if f.bits == 32 {
		return 20
	}
	return 40
}

// established plays a handshake of raw segments, opened by from.
func (g *ground) established(from, to *end, src, dst string) {
	g.t.Helper()
	g.want("allow", "SYN", from, to, testenv.TCP(src, dst, syn))
	g.want("allow", "SYN ACK", to, from, testenv.TCP(dst, src, syn|ack))
	g.want("allow", "ACK", from, to, testenv.TCP(src, dst, ack))
}

// R8: an error that quotes a packet of a live flow passes, from whatever router, in any form that
// routers give it. One that quotes anything else is judged by the rules, and none makes a flow.
func TestR8Errors(t *testing.T) {
	g := newGround(t, options{mute: true})
	a := g.pod(testenv.PodA, "IE", "E "+v4.web+" tcp/443", "E "+v6.web+" tcp/443", "E "+v4.d+" udp/53", "E "+v6.d+" udp/53",
		"E 172.20.0.80 tcp/80", "E fd00:20::80 tcp/80", "I "+v4.other+" tcp/8080", "I "+v6.other+" tcp/8080", "E "+v4.web+" sctp/9", "E "+v6.web+" sctp/9")
	d := g.pod(testenv.PodD, "")
	b := g.pod(testenv.PodB, "")
	each(t, g, func(t *testing.T, f family) {
		vip := map[int]string{32: "172.20.0.80", 128: "fd00:20::80"}[f.bits]
		tcp := testenv.TCP(at(f.a, 41000), at(f.web, 443), ack, make([]byte, 1400)...)
		early := f.icmpError(tooBig, f.router, f.a, 1300, tcp, f.header()+8)
		g.stateless("before there is a flow", func() { g.want("deny policy", "too big", g.ext, a.end, early) })

		g.established(a.end, g.ext, at(f.a, 41000), at(f.web, 443))
		g.established(a.end, g.ext, at(f.a, 41010), at(vip, 80))
		g.established(g.ext, a.end, at(f.other, 50000), at(f.a, 8080))
		dns := testenv.UDP(at(f.a, 42000), at(f.d, 53), 1, 2, 3)
		g.want("allow", "query", a.end, d.end, dns)
		sctp := testenv.SCTP(at(f.a, 9), at(f.web, 9))
		g.want("allow", "SCTP", a.end, g.ext, sctp)
		toVIP := testenv.TCP(at(f.a, 41010), at(vip, 80), ack, make([]byte, 1400)...)
		answer := testenv.TCP(at(f.a, 8080), at(f.other, 50000), ack, make([]byte, 100)...)
		short, long := f.header()+8, 548

		g.stateless("errors", func() {
			for _, c := range []struct {
				what string
				from *end
				data []byte
			}{
				{"too big", g.ext, f.icmpError(tooBig, f.router, f.a, 1300, tcp, short)},
				{"again", g.ext, f.icmpError(tooBig, f.router, f.a, 1300, tcp, short)},
				{"too big from the server", g.ext, f.icmpError(tooBig, f.web, f.a, 1300, tcp, short)},
				{"time exceeded", g.ext, f.icmpError(timeExceeded, f.router, f.a, 0, tcp, short)},
				{"parameter problem", g.ext, f.icmpError(parameter, f.router, f.a, 0, tcp, short)},
				{"prohibited", g.ext, f.icmpError(prohibited, f.router, f.a, 0, tcp, short)},
				{"quote of 548 bytes", g.ext, f.icmpError(tooBig, f.router, f.a, 1300, tcp, long)},
				{"flow to a VIP, as the pod sees it", g.ext, f.icmpError(tooBig, f.router, f.a, 1300, toVIP, short)},
				{"of what the pod answered", g.ext, f.icmpError(tooBig, f.router, f.a, 1300, answer, short)},
				{"of SCTP", g.ext, f.icmpError(tooBig, f.router, f.a, 1300, sctp, short)},
				{"port unreachable from the peer pod", d.end, f.icmpError(unreachable, f.d, f.a, 0, dns, short)},
			} {
				g.want("allow", c.what, c.from, a.end, c.data)
			}
			if f.bits == 32 {
				g.want("allow", "quoted header with options", g.ext, a.end, f.icmpError(tooBig, f.router, f.a, 1300, withOptions(tcp, 4), 24+8))
				g.want("allow", "quoted header with forty bytes of options", g.ext, a.end, f.icmpError(tooBig, f.router, f.a, 1300, withOptions(tcp, 40), 60+8))
				return
			}
			for _, kinds := range [][]byte{{60}, {0}, {44}, {0, 60, 43}} {
				g.want("allow", "quoted extension headers", g.ext, a.end, f.icmpError(tooBig, f.router, f.a, 1300, withExt(tcp, kinds...), 1200))
			}
		})
		g.stateless("forged errors", func() {
			for what, data := range map[string][]byte{
				"quotes what the server sent":       f.icmpError(tooBig, f.router, f.a, 1300, testenv.TCP(at(f.web, 443), at(f.a, 41000), ack), short),
				"quotes another port":               f.icmpError(tooBig, f.router, f.a, 1300, testenv.TCP(at(f.a, 41001), at(f.web, 443), ack), short),
				"quotes another peer":               f.icmpError(tooBig, f.router, f.a, 1300, testenv.TCP(at(f.a, 41000), at(f.other, 443), ack), short),
				"quotes another protocol":           f.icmpError(tooBig, f.router, f.a, 1300, testenv.UDP(at(f.a, 41000), at(f.web, 443)), short),
				"quotes another pod's packet":       f.icmpError(tooBig, f.router, f.a, 1300, testenv.TCP(at(f.b, 41000), at(f.web, 443), ack), short),
				"quotes nothing":                    f.icmpError(tooBig, f.router, f.a, 1300, tcp, 0),
				"quote ends in the ports":           f.icmpError(tooBig, f.router, f.a, 1300, tcp, f.header()+3),
				"redirect":                          f.icmpError(redirect, f.router, f.a, 1300, tcp, short),
				"quotes an error":                   f.icmpError(tooBig, f.router, f.a, 1300, f.icmpError(tooBig, f.a, f.web, 1300, tcp, short), 200),
				"quotes the flow as the VIP's pod":  f.icmpError(tooBig, f.router, f.a, 1300, testenv.TCP(at(f.a, 41010), at(f.b, 80), ack), short),
				"quotes the query of another port":  f.icmpError(unreachable, f.d, f.a, 0, testenv.UDP(at(f.a, 42000), at(f.d, 54)), short),
				"quotes a later fragment of nobody": f.icmpError(tooBig, f.router, f.a, 1300, f.fragments(testenv.UDP(at(f.a, 42000), at(f.d, 53), make([]byte, 100)...), 9, 64)[1], 100),
			} {
				g.want("deny policy", what, g.ext, a.end, data)
			}
		})
		// The other way: a pod may tell its peer of a flow, and nobody else of anything.
		g.stateless("errors of the pod", func() {
			inbound := testenv.TCP(at(f.other, 50000), at(f.a, 8080), ack, make([]byte, 100)...)
			g.want("allow", "error to the peer", a.end, g.ext, f.icmpError(unreachable, f.a, f.other, 0, inbound, short))
			g.want("deny policy", "error to somebody else", a.end, g.ext, f.icmpError(unreachable, f.a, f.router, 0, inbound, short))
			g.want("deny policy", "error that quotes its own packet", a.end, g.ext, f.icmpError(unreachable, f.a, f.other, 0, answer, short))
			g.want("deny policy", "redirect", a.end, g.ext, f.icmpError(redirect, f.a, f.other, 0, inbound, short))
			g.want("allow", "control: pod without policy", b.end, g.ext, f.icmpError(unreachable, f.b, f.other, 0, inbound, short))
		})
	})
}

// withOptions puts n bytes of options (no-operation) into an IPv4 header, and mends its checksum.
func withOptions(frame []byte, n int) []byte {
	frame = slices.Insert(slices.Clone(frame), 34, slices.Repeat([]byte{1}, n)...)
	frame[14] += byte(n / 4)
	binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-14))
	return checksummed(frame)
}

// checksummed sets the checksum of an IPv4 header of whatever length it claims.
func checksummed(frame []byte) []byte {
	frame = slices.Clone(frame)
	frame[24], frame[25] = 0, 0
	header := frame[14:min(len(frame), 14+int(frame[14]&15)*4)]
	sum := uint32(0)
	for i := 0; i+1 < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(frame[24:], ^uint16(sum))
	return frame
}

// withExt puts extension headers of the given kinds behind an IPv6 header.
func withExt(frame []byte, kinds ...byte) []byte {
	frame = slices.Clone(frame)
	for _, kind := range slices.Backward(kinds) {
		ext := []byte{frame[20], 0, 1, 4, 0, 0, 0, 0} // padding of six bytes
		switch kind {
		case 43: // routing header with no segments left
			ext[2], ext[3] = 0, 0
		case 44: // the only fragment of its packet
			ext = []byte{frame[20], 0, 0, 0, 0, 0, 0, 9}
		case 51: // authentication header of 24 bytes
			ext = append(ext[:1:1], 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1)
			ext = append(ext, make([]byte, 12)...)
		}
		frame[20] = kind
		frame = slices.Insert(frame, 54, ext...)
	}
	binary.BigEndian.PutUint16(frame[18:], uint16(len(frame)-54))
	return frame
}

// fragments cuts the IP payload of a frame at the given offsets, which are multiples of 8.
func (f family) fragments(frame []byte, id uint16, cuts ...int) [][]byte {
	var out [][]byte
	head := 14 + f.header()
	payload := frame[head:]
	cuts = append(append([]int{0}, cuts...), len(payload))
	for i := range len(cuts) - 1 {
		out = append(out, f.fragment(frame, id, cuts[i], i < len(cuts)-2, payload[cuts[i]:cuts[i+1]]))
	}
	return out
}

// fragment is one fragment: any payload at any offset.
func (f family) fragment(frame []byte, id uint16, offset int, more bool, payload []byte) []byte {
	head := 14 + f.header()
	part := slices.Clone(frame[:head])
	flag := uint16(0)
	if f.bits == 32 {
		if more {
			flag = 0x2000
		}
		binary.BigEndian.PutUint16(part[18:], id)
		binary.BigEndian.PutUint16(part[20:], uint16(offset/8)|flag)
		part = append(part, payload...)
		binary.BigEndian.PutUint16(part[16:], uint16(len(part)-14))
		return checksummed(part)
	}
	if more {
		flag = 1
	}
	ext := []byte{part[20], 0}
	ext = binary.BigEndian.AppendUint16(ext, uint16(offset)|flag)
	ext = binary.BigEndian.AppendUint32(ext, uint32(id))
	part[20] = 44
	part = append(append(part, ext...), payload...)
	binary.BigEndian.PutUint16(part[18:], uint16(len(part)-54))
	return part
}
