package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// LoadPrograms loads the programs of this build over maps that exist, which keep their content and their
// sizes. The maps must be of this layout: the kernel refuses programs that would read them wrongly, and
// the error names the map. Close the programs when done; the maps stay the caller's.
func LoadPrograms(maps map[string]*ebpf.Map) (map[string]*ebpf.Program, error) {
	liftMemlock()
	spec, err := prepare(SizesOf(maps))
	if err != nil {
		return nil, err
	}
	for name, m := range maps {
		s, ok := spec.Maps[name]
		if !ok {
			return nil, fmt.Errorf("load programs: map %s is not one of this build", name)
		}
		s.MaxEntries, s.Contents = m.MaxEntries(), nil
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	if err != nil {
		return nil, fmt.Errorf("load programs: %w", shorten(err))
	}
	defer coll.Close()
	progs := map[string]*ebpf.Program{}
	for _, name := range ProgNames() {
		progs[name] = coll.DetachProgram(name)
	}
	return progs, nil
}

// SizesOf tells the sizes that maps were made with. What is missing is 0.
func SizesOf(maps map[string]*ebpf.Map) Sizes {
	size := func(name string) uint32 {
		if m := maps[name]; m != nil {
			return m.MaxEntries()
		}
		return 0
	}
	return Sizes{Flows4: size(latchMapFlows4), Flows6: size(latchMapFlows6), Frags: size(latchMapFrags), Events: size(latchMapEvents)}
}
