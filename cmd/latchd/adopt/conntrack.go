package adopt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/policy"
)

// Numbers of linux/netfilter/nfnetlink_conntrack.h and its like.
const (
	subsysConntrack = 1
	getConntrack    = 1

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4

	ctaTupleIP    = 1
	ctaTupleProto = 2

	ctaIPv4Src = 1
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3

	ctaProtoInfoTCP = 1
	ctaTCPState     = 1

	statusSeenReply = 1 << 1

	tcpTimeWait = 7 // this and later states: the connection has ended
)

// tuple is one direction of an entry.
type tuple struct {
	src, dst netip.AddrPort
	proto    uint8
}

// entry is a connection as the kernel tracks it.
type entry struct {
	orig, reply tuple
	answered    bool
	ended       bool
}

// Flows returns the live flows of these addresses that the kernel tracks, but for those with the node
// itself: what it only translates is not its own. Call it in the node's network namespace.
func Flows(of map[netip.Addr]bool) ([]enforce.Flow, error) {
	node, err := nodeAddrs()
	if err != nil {
		return nil, err
	}
	families := map[uint8]bool{}
	for a := range of {
		families[familyOf(a)] = true
	}
	var flows []enforce.Flow
	var errs []error
	for family := range families {
		errs = append(errs, dump(family, func(e entry) {
			if !node[e.orig.src.Addr()] && !node[e.reply.src.Addr()] {
				flows = append(flows, e.flows(of)...)
			}
		}))
	}
	return flows, errors.Join(errs...)
}

// nodeAddrs are the addresses of the node, whatever interface they are on.
func nodeAddrs() (map[netip.Addr]bool, error) {
	list, err := netlinksafe.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the node's addresses: %w", err)
	}
	own := map[netip.Addr]bool{}
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			own[addr.Unmap()] = true
		}
	}
	return own, nil
}

func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// flows are the entry as each of these addresses sees it. Who opened it sent to where the entry begins,
// before it was translated; who answers sees the other end of the answer.
func (e entry) flows(of map[netip.Addr]bool) (out []enforce.Flow) {
	if e.ended || e.orig.proto != unix.IPPROTO_TCP && e.orig.proto != unix.IPPROTO_UDP && e.orig.proto != unix.IPPROTO_SCTP {
		return nil
	}
	if of[e.orig.src.Addr()] {
		out = append(out, enforce.Flow{Local: e.orig.src, Remote: e.orig.dst, Proto: e.orig.proto, Dir: policy.Egress, Answered: e.answered})
	}
	if of[e.reply.src.Addr()] {
		out = append(out, enforce.Flow{Local: e.reply.src, Remote: e.reply.dst, Proto: e.reply.proto, Dir: policy.Ingress, Answered: e.answered})
	}
	return out
}

// dump calls f for each entry of a family. It keeps none of them: a node may have hundreds of thousands.
func dump(family uint8, f func(entry)) error {
	req := nl.NewNetlinkRequest(subsysConntrack<<8|getConntrack, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if e, ok := parse(msg); ok {
			f(e)
		}
		return true
	})
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return nil // this kernel does not track connections, or not where we could ask
	case err != nil:
		return fmt.Errorf("list tracked connections: %w", err)
	}
	return nil
}

// parse reads a message. It reports false for one that is not whole.
func parse(msg []byte) (e entry, ok bool) {
	if len(msg) < nl.SizeofNfgenmsg {
		return e, false
	}
	for attr := range attributes(msg[nl.SizeofNfgenmsg:]) {
		switch attr.kind {
		case ctaTupleOrig:
			e.orig = parseTuple(attr.value)
		case ctaTupleReply:
			e.reply = parseTuple(attr.value)
		case ctaStatus:
			e.answered = len(attr.value) == 4 && binary.BigEndian.Uint32(attr.value)&statusSeenReply != 0
		case ctaProtoInfo:
			for info := range attributes(attr.value) {
				for tcp := range attributes(info.value) {
					if info.kind == ctaProtoInfoTCP && tcp.kind == ctaTCPState && len(tcp.value) == 1 {
						e.ended = tcp.value[0] >= tcpTimeWait
					}
				}
			}
		}
	}
	return e, e.orig.whole() && e.reply.whole()
}

func (t tuple) whole() bool { return t.src.IsValid() && t.dst.IsValid() }

func parseTuple(b []byte) (t tuple) {
	var src, dst netip.Addr
	var sport, dport uint16
	for part := range attributes(b) {
		for attr := range attributes(part.value) {
			switch {
			case part.kind == ctaTupleIP && (attr.kind == ctaIPv4Src || attr.kind == ctaIPv6Src):
				src, _ = netip.AddrFromSlice(attr.value)
			case part.kind == ctaTupleIP && (attr.kind == ctaIPv4Dst || attr.kind == ctaIPv6Dst):
				dst, _ = netip.AddrFromSlice(attr.value)
			case part.kind == ctaTupleProto && attr.kind == ctaProtoNum && len(attr.value) == 1:
				t.proto = attr.value[0]
			case part.kind == ctaTupleProto && attr.kind == ctaProtoSrcPort && len(attr.value) == 2:
				sport = binary.BigEndian.Uint16(attr.value)
			case part.kind == ctaTupleProto && attr.kind == ctaProtoDstPort && len(attr.value) == 2:
				dport = binary.BigEndian.Uint16(attr.value)
			}
		}
	}
	t.src, t.dst = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport)
	return t
}

type attribute struct {
	kind  uint16
	value []byte
}

// attributes walks netlink attributes, up to one that is cut off.
func attributes(b []byte) func(yield func(attribute) bool) {
	return func(yield func(attribute) bool) {
		for len(b) >= unix.SizeofNlAttr {
			length := int(nl.NativeEndian().Uint16(b))
			if length < unix.SizeofNlAttr || length > len(b) {
				return
			}
			kind := nl.NativeEndian().Uint16(b[2:]) & nl.NLA_TYPE_MASK
			if !yield(attribute{kind, b[unix.SizeofNlAttr:length]}) {
				return
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}
