package view

import (
	"cmp"
	"slices"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// Counter counts the decisions of one slot: new flows and drops, not the packets of known flows. Pods
// that no policy can tell apart share a slot, and so their counters.
type Counter struct {
	Slot      *uint32  `json:"slot,omitempty"` // none: the packets of interfaces that are bound to no rules
	Pods      []string `json:"pods,omitempty"` // namespace/name of the pods of the slot
	Direction string   `json:"direction"`
	Reason    string   `json:"reason"`
	Verdict   string   `json:"verdict"`
	Packets   uint64   `json:"packets"`
}

// Counters returns the counters of the slots of some pods, or all for nil, in the order of slots.
// LostEvents is how many events found no room.
func (n *Node) Counters(pods []Pod) (counters []Counter, lostEvents uint64, err error) {
	k, err := n.objects()
	if err != nil {
		return nil, 0, err
	}
	all := pods == nil
	if all {
		if pods, err = n.Pods(); err != nil {
			return nil, 0, err
		}
	}
	names := map[uint32][]string{}
	for _, p := range pods {
		if len(p.Interfaces) > 0 && !slices.Contains(names[p.Slot], p.Key()) {
			names[p.Slot] = append(names[p.Slot], p.Key())
		}
	}
	var key bpf.CounterKey
	var perCPU []uint64
	it := k.maps["counters"].Iterate()
	for it.Next(&key, &perCPU) {
		var sum uint64
		for _, v := range perCPU {
			sum += v
		}
		if key.Slot == bpf.CounterLostEvents {
			lostEvents += sum
			continue
		}
		if _, wanted := names[key.Slot]; !wanted && !all {
			continue
		}
		counters = append(counters, counterOf(key, names, sum))
	}
	slices.SortFunc(counters, func(a, b Counter) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(b.Direction, a.Direction),
			cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(a.Reason, b.Reason))
	})
	return counters, lostEvents, it.Err()
}

func counterOf(key bpf.CounterKey, names map[uint32][]string, sum uint64) Counter {
	c := Counter{Pods: names[key.Slot], Direction: policy.Direction(key.Dir).String(),
		Reason: bpf.Reason(key.Reason).String(), Verdict: policy.Verdict(key.Allow).String(), Packets: sum}
	if key.Slot != bpf.CounterNoSlot {
		c.Slot = &key.Slot
	}
	return c
}

// order puts what belongs to no slot last.
func order(c Counter) uint64 {
	if c.Slot == nil {
		return 1 << 32
	}
	return uint64(*c.Slot)
}
