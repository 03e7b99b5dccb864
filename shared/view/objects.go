package view

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/pins"
)

// Program is a pinned program, as the kernel knows it.
type Program struct {
	Name string `json:"name"`
	ID   uint32 `json:"id"`
	Type string `json:"type"`
	Tag  string `json:"tag"`
	Pin  string `json:"pin"`
	Side string `json:"side"` // to_pod: judges the pods' ingress; from_pod: their egress
	Maps []Map  `json:"maps"`
}

// Map is a pinned map, or one of the inner maps that hold a slot's rules.
type Map struct {
	Name       string   `json:"name"` // of the pin; of an inner map the pin it is reached by
	ID         uint32   `json:"id"`
	Type       string   `json:"type"`
	KeySize    uint32   `json:"keySize"`
	ValueSize  uint32   `json:"valueSize"`
	MaxEntries uint32   `json:"maxEntries"`
	Pin        string   `json:"pin,omitempty"`
	Slot       *uint32  `json:"slot,omitempty"` // of an inner map
	Pods       []string `json:"pods,omitempty"` // of that slot
}

// Programs returns the pinned programs with the maps they use.
func (n *Node) Programs() ([]Program, error) {
	maps, err := n.pinned()
	if err != nil {
		return nil, err
	}
	var all []Program
	for _, side := range attach.Sides {
		path := n.pins.Prog(side.String())
		p, err := pins.LoadProgram(path, nil)
		if err != nil {
			return all, err
		}
		info, err := p.Info()
		_ = p.Close()
		if err != nil {
			return all, fmt.Errorf("read program %s: %w", path, err)
		}
		id, _ := info.ID()
		used, _ := info.MapIDs()
		out := Program{Name: info.Name, ID: uint32(id), Type: info.Type.String(), Tag: info.Tag, Pin: path, Side: side.String()}
		for _, m := range maps {
			if slices.Contains(used, ebpf.MapID(m.ID)) {
				out.Maps = append(out.Maps, m)
			}
		}
		all = append(all, out)
	}
	return all, nil
}

// Maps returns the pinned maps, and behind them the inner maps of the slots that pods are in.
func (n *Node) Maps() ([]Map, error) {
	all, err := n.pinned()
	if err != nil {
		return nil, err
	}
	pods, err := n.Pods()
	names := map[uint32][]string{}
	var slots []uint32
	for _, p := range pods {
		if p.Slot < bpf.FirstSlot {
			continue
		}
		if names[p.Slot] == nil {
			slots = append(slots, p.Slot)
		}
		names[p.Slot] = append(names[p.Slot], p.Key())
	}
	slices.Sort(slots)
	outers := slices.DeleteFunc(slices.Clone(all), func(m Map) bool { return m.Type != ebpf.ArrayOfMaps.String() })
	for _, slot := range slots {
		for _, outer := range outers {
			inner, ok, innerErr := n.inner(outer.Name, slot)
			if err = errors.Join(err, innerErr); ok {
				inner.Pods = names[slot]
				all = append(all, inner)
			}
		}
	}
	return all, err
}

func (n *Node) pinned() ([]Map, error) {
	if _, err := n.objects(); err != nil {
		return nil, err
	}
	var all []Map
	for _, name := range bpf.MapNames() {
		m, err := pins.LoadMap(n.pins.Map(name), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			return all, err
		}
		out, err := describe(m, name)
		if err != nil {
			return all, err
		}
		out.Pin = n.pins.Map(name)
		all = append(all, out)
	}
	return all, nil
}

// inner describes a slot's inner map in an outer one, if it has one.
func (n *Node) inner(outer string, slot uint32) (Map, bool, error) {
	var id uint32
	err := n.kernel.maps[outer].Lookup(slot, &id)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return Map{}, false, nil
	}
	if err != nil {
		return Map{}, false, fmt.Errorf("look up slot %d of %s: %w", slot, outer, err)
	}
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if errors.Is(err, ebpf.ErrKeyNotExist) || errors.Is(err, fs.ErrNotExist) {
		return Map{}, false, nil // replaced meanwhile
	}
	if err != nil {
		return Map{}, false, fmt.Errorf("open map %d: %w", id, err)
	}
	out, err := describe(m, outer)
	out.Slot = &slot
	return out, err == nil, err
}

// describe describes a map, and closes it.
func describe(m *ebpf.Map, name string) (Map, error) {
	defer func() { _ = m.Close() }()
	info, err := m.Info()
	if err != nil {
		return Map{}, fmt.Errorf("read map %s: %w", name, err)
	}
	id, _ := info.ID()
	return Map{Name: name, ID: uint32(id), Type: info.Type.String(), KeySize: info.KeySize, ValueSize: info.ValueSize, MaxEntries: info.MaxEntries}, nil
}

// Slot is the header of a rule set in the kernel.
type Slot struct {
	Slot       uint32   `json:"slot"`
	Generation uint32   `json:"generation"`
	Identifier string   `json:"identifier,omitempty"`
	Complete   bool     `json:"complete"`
	Hash       string   `json:"hash"` // of its rules
	Pods       []string `json:"pods,omitempty"`
}

// Slots returns the slots in use.
func (n *Node) Slots() ([]Slot, error) {
	k, err := n.objects()
	if err != nil {
		return nil, err
	}
	pods, err := n.Pods()
	var all []Slot
	for i := range uint32(k.slots.Len()) {
		h, _ := k.slot(i)
		if h.Flags == 0 {
			continue
		}
		s := Slot{Slot: i, Generation: h.Generation, Complete: h.Flags&bpf.SlotComplete != 0, Hash: fmt.Sprintf("%x", h.RulesHash)}
		if i >= bpf.FirstSlot {
			s.Identifier = fmt.Sprintf("%x", h.Identifier)
		}
		for _, p := range pods {
			if p.Slot == i && len(p.Interfaces) > 0 {
				s.Pods = append(s.Pods, p.Key())
			}
		}
		all = append(all, s)
	}
	return all, err
}
