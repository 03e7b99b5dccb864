package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// Content is what the kernel holds for a slot: the rules (without Sources, which the kernel does
// not know) and where their port sets stand. Treat it as immutable.
type Content struct {
	Rules  *policy.Rules
	shapes shapes
	sets   *sets
}

// Read reads the content of a slot back from the kernel. The caller holds the lock of the
// identifier whose slot it is; with a writer at work the result would be neither old nor new.
func (t *Tables) Read(slot uint32) (*Content, error) {
	c := &Content{Rules: &policy.Rules{}, sets: newSets()}
	portset, err := inner(t.portsets, slot)
	if err != nil {
		return nil, err
	}
	if portset != nil {
		defer portset.Close()
	}
	h := t.slots.At(int(slot))
	decoded := map[bpf.RuleVal][]policy.Breakpoint{}
	ports := func(v bpf.RuleVal) ([]policy.Breakpoint, error) {
		if p, ok := decoded[v]; ok {
			return p, nil
		}
		p := decodeInline(v)
		if v.In&bpf.ResSet != 0 {
			if p, err = readSet(portset, v.A, v.B); err != nil {
				return nil, err
			}
			c.sets.mark(p, v.A)
		}
		decoded[v] = p
		return p, nil
	}
	for _, d := range policy.Directions {
		c.Rules.OnMiss[d] = decodeResult(atomic.LoadUint32(&h.OnMiss[d]))
		for _, f := range families {
			c.shapes[d][f] = t.shape(slot, d, f)
			entries, err := t.readFamily(slot, d, f, ports)
			if err != nil {
				return nil, fmt.Errorf("read rules of slot %d: %w", slot, err)
			}
			c.Rules.Entries[d] = append(c.Rules.Entries[d], entries...)
		}
	}
	return c, nil
}

func (t *Tables) readFamily(slot uint32, d policy.Direction, f family, ports func(bpf.RuleVal) ([]policy.Breakpoint, error)) ([]policy.Entry, error) {
	s := t.shape(slot, d, f)
	var entries []policy.Entry
	for _, st := range []store{inHash, inTrie} {
		if (st == inHash && len(s.lens) == 0) || (st == inTrie && !s.trie) {
			continue
		}
		m, err := inner(t.outer[d][f][st], slot)
		if err != nil {
			return nil, err
		}
		if m == nil {
			return nil, fmt.Errorf("inner map of %s is missing", t.outer[d][f][st])
		}
		err = each(m, f, func(p netip.Prefix, v bpf.RuleVal) error {
			bp, err := ports(v)
			entries = append(entries, policy.Entry{Prefix: p, Ports: bp})
			return err
		})
		_ = m.Close()
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(entries, compareEntries)
	return entries, nil
}

// each calls fn for every element of an inner rule map.
func each(m *ebpf.Map, f family, fn func(netip.Prefix, bpf.RuleVal) error) error {
	if f == v4 {
		return eachOf(m, func(k bpf.RuleKey4) netip.Prefix {
			return netip.PrefixFrom(addr4(k.Addr), int(k.Plen))
		}, fn)
	}
	return eachOf(m, func(k bpf.RuleKey6) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom16(k.Addr), int(k.Plen))
	}, fn)
}

func eachOf[K any](m *ebpf.Map, prefix func(K) netip.Prefix, fn func(netip.Prefix, bpf.RuleVal) error) error {
	err := bpf.Batches(m, func(keys []K, values []bpf.RuleVal) error {
		for i, k := range keys {
			if err := fn(prefix(k), values[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return iterate(m, prefix, fn)
	}
	return err
}

// iterate is eachOf for maps without batch operations: tries before 5.13.
func iterate[K any](m *ebpf.Map, prefix func(K) netip.Prefix, fn func(netip.Prefix, bpf.RuleVal) error) error {
	var key K
	var value bpf.RuleVal
	it := m.Iterate()
	for it.Next(&key, &value) {
		if err := fn(prefix(key), value); err != nil {
			return err
		}
	}
	return it.Err()
}

func addr4(a uint32) netip.Addr {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], a)
	return netip.AddrFrom4(b)
}
