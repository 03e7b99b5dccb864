package bpf_test

import (
	"encoding/binary"
	"net/netip"

	"github.com/latch-cni/latch/bpf"
)

// This file is a second, plain implementation of the programs for packets that belong to no flow. It
// shares nothing with the C but the documents.

// parsed is a packet as its receiver understands it.
type parsed struct {
	src, dst     netip.Addr
	proto        int
	sport, dport int
	flags        byte // of TCP
	kind         byte // of ICMP
	hops         byte
	first, later bool // fragments
	ext          bool // extension headers of IPv6
	payload      int  // bytes of L4 and behind
}

const (
	notIP     = "ethertype"
	malformed = "malformed"
	isARP     = "arp"
)

func be(b []byte) int { return int(binary.BigEndian.Uint16(b)) }

// parse returns the packet, or why there is none.
func parse(frame []byte) (parsed, string) {
	kind, rest := be(frame[12:]), frame[14:]
	if kind < 0x600 {
		return parsed{}, notIP
	}
	for range 2 {
		if kind != 0x8100 && kind != 0x88a8 {
			break
		}
		if len(rest) < 4 || be(rest)&0xfff != 0 {
			return parsed{}, notIP
		}
		kind, rest = be(rest[2:]), rest[4:]
	}
	var p parsed
	ok := false
	switch kind {
	case 0x0806:
		return p, isARP
	case 0x0800:
		p, ok = parse4(rest)
	case 0x86dd:
		p, ok = parse6(rest)
	default:
		return p, notIP
	}
	if !ok {
		return p, malformed
	}
	return p, ""
}

func parse4(b []byte) (p parsed, ok bool) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return p, false
	}
	header, total := int(b[0]&15)*4, be(b[2:])
	if header < 20 || total < header || total > len(b) || refused(b[20:header]) {
		return p, false
	}
	p.src, p.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	p.proto, p.hops = int(b[9]), b[8]
	offset := be(b[6:]) & 0x1fff * 8
	p.first, p.later = offset == 0 && b[6]&0x20 != 0, offset > 0
	if p.later {
		return p, offset >= smallest(p.proto)
	}
	return p, p.transport(b[header:total], 1)
}

// refused tells whether options are cut, are too many (two no-operations count as one, the end of the list as
// another), or hold a source route.
func refused(options []byte) bool {
	for steps := 0; len(options) > 0; steps++ {
		n := 1
		switch {
		case steps == 20:
			return true
		case options[0] == 0:
			return false
		case options[0] == 1:
			if len(options) > 1 && options[1] == 1 {
				n = 2
			}
		case len(options) < 2 || options[0]&127 == 3 || options[0]&127 == 9:
			return true
		default:
			n = int(options[1])
		}
		if n < 1 || n > len(options) || n == 1 && options[0] != 1 {
			return true
		}
		options = options[n:]
	}
	return false
}

func parse6(b []byte) (p parsed, ok bool) {
	if len(b) < 40 || b[0]>>4 != 6 || 40+be(b[4:]) > len(b) {
		return p, false
	}
	p.src, p.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	p.proto, p.hops = int(b[6]), b[7]
	b = b[40 : 40+be(b[4:])]
	for n := 0; ; n++ {
		length := 0
		switch p.proto {
		case 0, 60, 43:
			if len(b) >= 8 {
				length = int(b[1])*8 + 8
			}
		case 51:
			if len(b) >= 8 {
				length = int(b[1])*4 + 8
			}
		case 44:
			length = 8
		default:
			return p, p.transport(b, 58)
		}
		if n == 8 || len(b) < 8 || (p.proto == 43 && b[3] != 0) || (p.proto == 44 && p.first) {
			return p, false
		}
		fragment := p.proto == 44
		p.ext = true
		p.proto = int(b[0])
		if fragment {
			if offset := be(b[2:]) &^ 7; offset > 0 {
				p.later = true
				return p, offset >= smallest(p.proto)
			}
			p.first = b[3]&1 != 0
		}
		if length > len(b) {
			return p, false
		}
		b = b[length:]
	}
}

// smallest is the least L4 header.
func smallest(proto int) int { return map[int]int{6: 20, 17: 8, 132: 12, 1: 8, 58: 8}[proto] }

func (p *parsed) transport(b []byte, icmp int) bool {
	if len(b) < smallest(p.proto) {
		return false
	}
	p.payload = len(b)
	switch p.proto {
	case 6:
		if n := int(b[12]>>4) * 4; n < 20 || n > len(b) {
			return false
		}
		p.flags = b[13]
		fallthrough
	case 17, 132:
		p.sport, p.dport = be(b), be(b[2:])
	case icmp:
		p.kind = b[0]
	}
	return true
}

// answer is the result of a step function, for one key or for all keys of its protocol.
func (ru rule) answer(k uint32, whole bool) uint32 {
	result := ru.ports[0].Result
	for i, p := range ru.ports {
		if p.Start <= k {
			result = p.Result
		} else if whole && p.Start <= k|0xffff && p.Result&bpf.ResAllow != ru.ports[i-1].Result&bpf.ResAllow {
			return denied
		}
	}
	return result
}

func (p policy) lookup(dir int, remote netip.Addr, k uint32, whole bool) bool {
	result, best := p.onMiss[dir], -1
	for _, ru := range p.rules[dir] {
		if pre := netip.MustParsePrefix(ru.prefix); pre.Contains(remote) && pre.Bits() > best {
			result, best = ru.answer(k, whole), pre.Bits()
		}
	}
	return result&bpf.ResAllow != 0
}

func (p policy) bears() bool {
	return p.onMiss[0]&p.onMiss[1]&bpf.ResAllow == 0 || len(p.rules[0])+len(p.rules[1]) > 0
}

// verdict says what becomes of a frame that belongs to no flow and comes from no node.
func (p policy) verdict(dir int, frame []byte, antispoof bool, own [2]netip.Addr) verdict {
	q, why := parse(frame)
	switch why {
	case isARP:
		return verdict{true, bpf.ReasonFlow}
	case notIP:
		return verdict{!p.bears(), bpf.ReasonEthertype}
	case malformed:
		return verdict{!p.bears(), bpf.ReasonMalformed}
	}
	local, remote := q.src, q.dst
	if dir == bpf.Ingress {
		local, remote = remote, local
	}
	link := q.src.Is6() && q.proto == 58 && !q.first && !q.later && onLink(q, dir)
	if dir == bpf.Egress && antispoof && local != own[0] && local != own[1] {
		linkLocal := local.Is6() && netip.MustParsePrefix("fe80::/10").Contains(local)
		if !linkLocal && (!link || local != netip.IPv6Unspecified()) {
			return verdict{false, bpf.ReasonSpoof}
		}
	}
	if link {
		return verdict{true, bpf.ReasonLink}
	}
	if q.later {
		if p.lookup(dir, remote, key(q.proto, 0), true) {
			return verdict{true, bpf.ReasonPolicy}
		}
		return verdict{false, bpf.ReasonFragment}
	}
	forward := p.lookup(dir, remote, key(q.proto, q.dport), false)
	syn, ack := q.flags&2 != 0, q.flags&16 != 0
	if q.proto != 6 || syn && !ack || forward && !syn {
		return verdict{forward, bpf.ReasonPolicy}
	}
	if p.lookup(1-dir, remote, key(q.proto, q.sport), false) {
		return verdict{true, bpf.ReasonReply}
	}
	return verdict{false, bpf.ReasonPolicy}
}

// onLink is for a node that has no routes, and so forwards nothing.
func onLink(q parsed, dir int) bool {
	within := func(a netip.Addr, prefix string) bool { return netip.MustParsePrefix(prefix).Contains(a) }
	switch q.kind {
	case 130, 131, 132, 143:
		return q.hops == 1 && (within(q.src, "fe80::/10") || q.src == netip.IPv6Unspecified())
	case 133, 134, 135, 136:
		if q.hops != 255 {
			return false
		}
		return dir == bpf.Ingress || within(q.dst, "fe80::/10") || within(q.dst, "ff02::/16") ||
			q.kind >= 135 && q.payload <= 32 && !q.ext && !q.dst.IsMulticast()
	}
	return false
}
