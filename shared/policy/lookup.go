package policy

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
)

// Lookup judges one packet as the kernel does: the longest matching prefix, then its ports. addr is
// the remote address; a zone is ignored, and an IPv4 address must not be v4-mapped.
func (r *Rules) Lookup(d Direction, addr netip.Addr, p Protocol, port uint16) Result {
	e := r.longest(d, addr)
	if e == nil {
		return r.OnMiss[d]
	}
	key := PortKey(p, port)
	i := sort.Search(len(e.Ports), func(i int) bool { return e.Ports[i].Start > key })
	return e.Ports[i-1].Result
}

// longest finds the entry of the longest prefix around an address. The last entry at or before a
// position in the order either covers the address, or shares with it some leading bits: then only
// entries at least that short can cover it, and the search goes on at the block of these bits.
func (r *Rules) longest(d Direction, addr netip.Addr) *Entry {
	if !addr.IsValid() {
		return nil
	}
	entries := r.Entries[d]
	at := blockOf(netip.PrefixFrom(addr, addr.BitLen()))
	for {
		i := sort.Search(len(entries), func(i int) bool {
			return blockOf(entries[i].Prefix).compare(at) > 0
		})
		if i == 0 {
			return nil
		}
		b := blockOf(entries[i-1].Prefix)
		if b.six != at.six {
			return nil
		}
		if b.covers(at) {
			return &entries[i-1]
		}
		entries = entries[:i-1]
		at = at.shorten(min(at.bits, b.common(at)))
	}
}

// Source returns what an id stands for. It returns false for 0 and for ids that do not occur.
func (r *Rules) Source(id RuleID) (Source, bool) {
	i, ok := slices.BinarySearchFunc(r.Sources, id, func(s Source, id RuleID) int {
		return cmp.Compare(s.ID, id)
	})
	if !ok {
		return Source{}, false
	}
	return r.Sources[i], true
}
