package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// NewInnerRules makes an inner map for rules_in4 and the like. The kernel refuses the update of the
// outer map if family does not fit it.
func NewInnerRules(name string, family int, entries uint32) (*ebpf.Map, error) {
	outer := latchMapRulesIn4
	if family == V6 {
		outer = latchMapRulesIn6
	}
	return newInner(name, outer, entries)
}

// NewInnerTrie makes an inner map for trie_in4 and the like.
func NewInnerTrie(name string, family int, entries uint32) (*ebpf.Map, error) {
	outer := latchMapTrieIn4
	if family == V6 {
		outer = latchMapTrieIn6
	}
	return newInner(name, outer, entries)
}

// NewInnerPortset makes an inner map for portsets, with room for so many blocks.
func NewInnerPortset(name string, blocks uint32) (*ebpf.Map, error) {
	return newInner(name, latchMapPortsets, blocks)
}

func newInner(name, outer string, entries uint32) (*ebpf.Map, error) {
	base, err := parsed()
	if err != nil {
		return nil, fmt.Errorf("parse bpf object: %w", err)
	}
	spec := base.Maps[outer].InnerMap.Copy()
	spec.Name = name
	plain(spec, entries)
	m, err := ebpf.NewMap(spec)
	if err != nil {
		return nil, fmt.Errorf("create inner map %s of %s: %w", name, outer, err)
	}
	return m, nil
}

// plain takes the BTF from an inner map: a node has thousands of them. Linux 5.15 to 6.1 holds one
// with BTF and one without for different, so templates have none either.
func plain(spec *ebpf.MapSpec, entries uint32) {
	spec.MaxEntries, spec.Key, spec.Value = entries, nil, nil
}
