package view

import (
	"errors"
	"sync/atomic"

	"github.com/latch-cni/latch/bpf"
)

// Fill says how full a table of the kernel is.
type Fill struct {
	Table    string `json:"table"`
	Used     int    `json:"used"` // of flow tables: live entries; expired ones make room
	Capacity int    `json:"capacity"`
	Flows    bool   `json:"flows,omitempty"` // it is a flow table
}

// Percent is the used part.
func (f Fill) Percent() int {
	if f.Capacity == 0 {
		return 0
	}
	return f.Used * 100 / f.Capacity
}

// Fill counts what is in the tables that can be full. It reads the flow tables as a whole.
func (n *Node) Fill() ([]Fill, error) {
	k, err := n.objects()
	if err != nil {
		return nil, err
	}
	slots := Fill{Table: "slots", Capacity: k.slots.Len()}
	for i := range k.slots.Len() {
		if atomic.LoadUint32(&k.slots.At(i).Flags) != 0 {
			slots.Used++
		}
	}
	pods := Fill{Table: "pod_state", Capacity: k.pods.Len()}
	for i := range k.pods.Len() {
		if atomic.LoadUint32(&k.pods.At(i).Ifindex) != 0 {
			pods.Used++
		}
	}
	hashed := Fill{Table: "pod_state_hash", Capacity: int(k.maps["pod_state_hash"].MaxEntries())}
	counters := Fill{Table: "counters", Capacity: int(k.maps["counters"].MaxEntries())}
	var key bpf.CounterKey
	var perCPU []uint64
	it := k.maps["counters"].Iterate()
	for it.Next(&key, &perCPU) {
		counters.Used++
	}
	errs := []error{it.Err(), each(k.maps["pod_state_hash"], func(uint32, bpf.PodState) { hashed.Used++ })}
	all := []Fill{slots, pods, hashed, counters}

	live := flowReader{now: bpf.Now(), timeouts: k.node.At(0).Timeouts}
	for _, table := range []string{"flows4", "spill4", "flows6", "spill6"} {
		f := Fill{Table: table, Capacity: int(k.maps[table].MaxEntries()), Flows: true}
		count := func(proto uint8, x bpf.Flow) {
			if !x.IsOver(live.now, &live.timeouts, proto) {
				f.Used++
			}
		}
		if table == "flows4" || table == "spill4" {
			errs = append(errs, each(k.maps[table], func(key bpf.FlowKey4, x bpf.Flow) { count(key.Proto, x) }))
		} else {
			errs = append(errs, each(k.maps[table], func(key bpf.FlowKey6, x bpf.Flow) { count(key.Proto, x) }))
		}
		all = append(all, f)
	}
	return all, errors.Join(errs...)
}
