package bpf

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
)

// maxVerifierLog bounds the verifier's words in an error.
const maxVerifierLog = 3 << 10

// A pod may take a quarter of a table in 16 seconds; what it takes beyond goes to a spill table an eighth
// as large, where flooding pods push out each other's entries only. Of the ring of events it may take a
// sixteenth in a second, and more as long as half of it is free.
const (
	sharePart = 4
	spillPart = 8
	eventPart = 16
	eventSize = 80 // bytes in the ring
)

// Sizes are the sizes of the maps that have a choice. 0 = default.
type Sizes struct {
	Flows4        uint32 // entries, 96 bytes each
	Flows6        uint32 // entries, 112 bytes each
	Frags         uint32 // entries: datagrams whose fragments are on their way
	Events        uint32 // bytes, a power of 2 and of pages
	RulesTemplate uint32 // entries of the inner map templates; inner maps may have any number
}

// DefaultSizes returns the sizes that zero fields stand for.
func DefaultSizes() Sizes {
	return Sizes{Flows4: DefaultFlows, Flows6: DefaultFlows / 2, Frags: 32768, Events: 512 << 10, RulesTemplate: 1}
}

// How many IPv4 flows a table may be asked to hold.
const (
	DefaultFlows = 131072
	MinFlows     = 1 << 10
	MaxFlows     = 1 << 22 // 400 MB
)

// FlowTables returns sizes for so many IPv4 flows, and half as many of IPv6; 0 stands for DefaultFlows. All
// other sizes have their default.
func FlowTables(flows uint32) Sizes {
	flows = or(flows, DefaultFlows)
	return Sizes{Flows4: flows, Flows6: flows / 2}
}

// Objects are the loaded programs and maps. Maps are keyed by name; MapNames lists them.
type Objects struct {
	FromPod *ebpf.Program
	ToPod   *ebpf.Program
	Maps    map[string]*ebpf.Map
}

// MapNames lists the names of maps and pins in the order in which they are pinned: what the first
// user of a layout looks for is last.
func MapNames() []string {
	return []string{
		latchMapNodeAddrs, latchMapCounters, latchMapEvents, latchMapFrags, latchMapFragSpill, latchMapQuotas,
		latchMapTableCounts, latchMapTableEnds,
		latchMapFlows4, latchMapFlows6, latchMapSpill4, latchMapSpill6, latchMapShares, latchMapPortsets,
		latchMapTrieIn4, latchMapTrieOut4, latchMapTrieIn6, latchMapTrieOut6,
		latchMapRulesIn4, latchMapRulesOut4, latchMapRulesIn6, latchMapRulesOut6,
		latchMapPodStateHash, latchMapPodState, latchMapSlots, latchMapNode,
	}
}

// LaterMaps lists the maps that early builds of the layout do not have.
func LaterMaps() []string {
	return []string{latchMapFragSpill, latchMapQuotas, latchMapTableCounts, latchMapTableEnds}
}

// NewMap makes one map.
func NewMap(name string, sizes Sizes) (*ebpf.Map, error) {
	liftMemlock()
	spec, err := prepare(sizes)
	if err != nil {
		return nil, err
	}
	m, err := ebpf.NewMap(spec.Maps[name])
	if err != nil {
		return nil, fmt.Errorf("make map %s: %w", name, err)
	}
	return m, nil
}

// ProgNames lists the names of programs and their pins.
func ProgNames() []string { return []string{latchProgFromPod, latchProgToPod} }

// The object file is parsed once a process.
var parsed = sync.OnceValues(loadLatch)

// Load creates all maps, with default timeouts and the two default slots, and loads the programs.
// An error of the verifier holds the end of its log.
func Load(sizes Sizes) (*Objects, error) {
	if err := haveSyscall(); err != nil {
		return nil, err
	}
	liftMemlock()
	spec, err := prepare(sizes)
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load bpf objects: %w", shorten(err))
	}
	defer coll.Close()

	o := &Objects{Maps: map[string]*ebpf.Map{}}
	for _, name := range MapNames() {
		o.Maps[name] = coll.DetachMap(name)
	}
	o.FromPod = coll.DetachProgram(latchProgFromPod)
	o.ToPod = coll.DetachProgram(latchProgToPod)
	return o, nil
}

// Close closes programs and maps. What is pinned or attached stays.
func (o *Objects) Close() error {
	var errs []error
	for _, m := range o.Maps {
		errs = append(errs, m.Close())
	}
	errs = append(errs, o.FromPod.Close(), o.ToPod.Close())
	return errors.Join(errs...)
}

func prepare(sizes Sizes) (*ebpf.CollectionSpec, error) {
	base, err := parsed()
	if err != nil {
		return nil, fmt.Errorf("parse bpf object: %w", err)
	}
	spec := base.Copy()
	vary(spec)

	def := DefaultSizes()
	flows4, flows6 := or(sizes.Flows4, def.Flows4), or(sizes.Flows6, def.Flows6)
	spec.Maps[latchMapFlows4].MaxEntries = flows4
	spec.Maps[latchMapFlows6].MaxEntries = flows6
	spec.Maps[latchMapSpill4].MaxEntries = max(flows4/spillPart, 1)
	spec.Maps[latchMapSpill6].MaxEntries = max(flows6/spillPart, 1)
	frags, events := or(sizes.Frags, def.Frags), or(sizes.Events, def.Events)
	spec.Maps[latchMapFrags].MaxEntries = frags
	spec.Maps[latchMapFragSpill].MaxEntries = max(frags/spillPart, 1)
	spec.Maps[latchMapEvents].MaxEntries = events
	for _, m := range spec.Maps {
		if m.InnerMap != nil {
			plain(m.InnerMap, or(sizes.RulesTemplate, def.RulesTemplate))
		}
	}

	spec.Maps[latchMapNode].Contents = []ebpf.MapKV{{Key: uint32(0), Value: Node{
		Timeouts:       DefaultTimeouts().Stamps(),
		NextGeneration: 2, // those of the default slots are taken
	}}}
	spec.Maps[latchMapSlots].Contents = []ebpf.MapKV{
		{Key: uint32(SlotDefaultAllow), Value: defaultSlot(ResAllow, 1)},
		{Key: uint32(SlotDefaultDeny), Value: defaultSlot(0, 2)},
	}

	var coarse uint8
	if features.HaveProgramHelper(ebpf.SchedCLS, asm.FnKtimeGetCoarseNs) == nil {
		coarse = 1
	}
	for name, value := range map[string]any{
		latchVarHasCoarseClock: coarse,
		latchVarFlowShare4:     max(flows4/sharePart, 1),
		latchVarFlowShare6:     max(flows6/sharePart, 1),
		latchVarFragShare:      max(frags/sharePart, 1),
		latchVarEventShare:     max(events/eventSize/eventPart, 1),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	return spec, nil
}

// Generations differ, so that flows of a pod that moves between the default slots are judged again.
func defaultSlot(onMiss, generation uint32) Slot {
	return Slot{Generation: generation, Flags: SlotUsed | SlotComplete, OnMiss: [2]uint32{onMiss, onMiss}}
}

// shorten keeps the end of a verifier's log, where it says what it did not like.
func shorten(err error) error {
	var ve *ebpf.VerifierError
	if !errors.As(err, &ve) {
		return err
	}
	log := fmt.Sprintf("%+v", ve)
	if len(log) > maxVerifierLog {
		log = "..." + log[len(log)-maxVerifierLog:]
	}
	return fmt.Errorf("%w\n%s", err, log)
}

func or(a, b uint32) uint32 {
	if a != 0 {
		return a
	}
	return b
}
