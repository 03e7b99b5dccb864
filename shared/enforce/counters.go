package enforce

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
)

// Map returns a pinned map for reading, nil after Close. Ask again for every use: when the pins are
// replaced, so is the map.
func (e *Enforcer) Map(name string) *ebpf.Map {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.objects == nil {
		return nil
	}
	return e.objects.maps[name]
}

// freeCounters deletes the counters of slots that are given back.
func (e *Enforcer) freeCounters(o *objects, slots []uint32) error {
	drop := func() error {
		errs := make([]error, len(slots))
		for i, slot := range slots {
			errs[i] = o.dropCounters(slot)
		}
		return errors.Join(errs...)
	}
	if e.cfg.FreeCounters != nil {
		return e.cfg.FreeCounters(slots, drop)
	}
	return drop()
}

func (o *objects) dropCounters(slot uint32) error {
	m := o.maps["counters"]
	for _, reason := range bpf.Reasons() {
		for _, dir := range []uint8{bpf.Ingress, bpf.Egress} {
			for _, allow := range []uint8{0, 1} {
				key := bpf.CounterKey{Slot: slot, Dir: dir, Reason: uint8(reason), Allow: allow}
				if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
					return fmt.Errorf("delete counters: %w", err)
				}
			}
		}
	}
	return nil
}
