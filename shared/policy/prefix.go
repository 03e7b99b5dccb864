package policy

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
)

// block is a prefix in a form that sorts and compares fast: the address is left-aligned in hi and
// lo, host bits are zero.
type block struct {
	hi, lo uint64
	bits   uint8
	six    bool
}

// valid tells prefixes that can match a packet. A v4-mapped prefix is neither IPv4 nor an address
// seen on a wire.
func valid(p netip.Prefix) bool { return p.IsValid() && !p.Addr().Is4In6() }

func blockOf(p netip.Prefix) block {
	b := block{bits: uint8(p.Bits()), six: p.Addr().Is6()}
	if b.six {
		a := p.Addr().As16()
		b.hi, b.lo = binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
	} else {
		a := p.Addr().As4()
		b.hi = uint64(binary.BigEndian.Uint32(a[:])) << 32
	}
	hi, lo := b.mask()
	b.hi &= hi
	b.lo &= lo
	return b
}

// mask relies on Go's shifts: by 64 and more they give 0.
func (b block) mask() (hi, lo uint64) {
	const ones = ^uint64(0)
	if b.bits <= 64 {
		return ones << (64 - b.bits), 0
	}
	return ones, ones << (128 - b.bits)
}

// covers tells whether c lies inside b or equals it.
func (b block) covers(c block) bool {
	hi, lo := b.mask()
	return b.six == c.six && b.bits <= c.bits && (b.hi^c.hi)&hi == 0 && (b.lo^c.lo)&lo == 0
}

// compare orders as Rules.Entries: family, address, shorter first. A block comes before all that
// lie inside it, and these before whatever comes after it.
func (b block) compare(c block) int {
	if b.six != c.six {
		if c.six {
			return -1
		}
		return 1
	}
	if b.hi != c.hi {
		return cmp.Compare(b.hi, c.hi)
	}
	if b.lo != c.lo {
		return cmp.Compare(b.lo, c.lo)
	}
	return cmp.Compare(b.bits, c.bits)
}

// common is the number of leading bits in which the addresses of two blocks of one family agree.
func (b block) common(c block) uint8 {
	if n := bits.LeadingZeros64(b.hi ^ c.hi); n < 64 {
		return uint8(n)
	}
	return uint8(64 + bits.LeadingZeros64(b.lo^c.lo))
}

// shorten returns the block of n bits around b.
func (b block) shorten(n uint8) block {
	b.bits = n
	hi, lo := b.mask()
	b.hi &= hi
	b.lo &= lo
	return b
}

func (b block) prefix() netip.Prefix {
	if b.six {
		var a [16]byte
		binary.BigEndian.PutUint64(a[:8], b.hi)
		binary.BigEndian.PutUint64(a[8:], b.lo)
		return netip.PrefixFrom(netip.AddrFrom16(a), int(b.bits))
	}
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], uint32(b.hi>>32))
	return netip.PrefixFrom(netip.AddrFrom4(a), int(b.bits))
}

// resolvePeer returns the block of a peer and its exceptions: masked, inside the block, none inside
// another. It returns false if the peer matches nothing. An exception that is not valid voids a
// rule that lets traffic through, and is no exception to one that denies: both fail closed. The
// exceptions are appended to buf.
func resolvePeer(p *Peer, a Action, buf []block) (b block, except []block, ok bool) {
	if !valid(p.Block) {
		return block{}, nil, false
	}
	b = blockOf(p.Block)
	except = buf
	for _, e := range p.Except {
		if !valid(e) {
			if a == ActionDeny {
				continue
			}
			return block{}, nil, false
		}
		x := blockOf(e)
		if x.covers(b) {
			return block{}, nil, false
		}
		if b.covers(x) {
			except = append(except, x)
		}
	}
	slices.SortFunc(except, block.compare)
	out := except[:0]
	for _, x := range except {
		if n := len(out); n == 0 || !out[n-1].covers(x) {
			out = append(out, x)
		}
	}
	return b, out, true
}
