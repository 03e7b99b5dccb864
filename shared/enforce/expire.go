package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
)

// crowded is how full a table may be with live flows before TCP connections that are ending, or that
// nobody answers, have to go after hurry. The rules judge what still comes of them.
const (
	crowded = 0.75
	hurry   = 2 * time.Second
)

// Expire deletes flows that have expired, and those of pods that are gone, and returns how many. The data
// path takes neither for flows, so nobody would need to delete them, were it not for Linux: a table that
// is full, of whatever, makes room for a new flow by pushing out one that was not looked up yet, which is
// one that waits for its answer and not the oldest.
func (e *Enforcer) Expire(ctx context.Context) (int, error) {
	o, err := e.current(ctx)
	if err != nil {
		return 0, err
	}
	bound, err := o.boundPods()
	if err != nil {
		return 0, err
	}
	x := expiry{now: bpf.Now(), timeouts: o.timeouts(), bound: bound}
	proto4 := func(k bpf.FlowKey4) (uint32, uint8) { return k.Pod, k.Proto }
	proto6 := func(k bpf.FlowKey6) (uint32, uint8) { return k.Pod, k.Proto }
	total := 0
	var errs []error
	for _, table := range []func() (int, error){
		func() (int, error) { return expire(o, x, "flows4", proto4) },
		func() (int, error) { return expire(o, x, "spill4", proto4) },
		func() (int, error) { return expire(o, x, "flows6", proto6) },
		func() (int, error) { return expire(o, x, "spill6", proto6) },
	} {
		n, err := table()
		total += n
		errs = append(errs, err)
	}
	return total, errors.Join(errs...)
}

// expiry is what decides whether a flow is dead.
type expiry struct {
	now      uint32
	timeouts [8]uint32
	bound    map[uint32]bool // pods
}

// expire deletes the dead flows of one table, and more of them when it is crowded.
func expire[K comparable](o *objects, x expiry, name string, of func(K) (pod uint32, proto uint8)) (int, error) {
	m := o.maps[name]
	deleted, kept, err := sweepFlows(o, m, x, of)
	if err != nil || float64(kept) < crowded*float64(m.MaxEntries()) {
		return deleted, err
	}
	for _, i := range []int{bpf.TimeoutTCPClosing, bpf.TimeoutTCPSyn} {
		x.timeouts[i] = min(x.timeouts[i], bpf.Stamp(hurry))
	}
	more, _, err := sweepFlows(o, m, x, of)
	return deleted + more, err
}

func sweepFlows[K comparable](o *objects, m *ebpf.Map, x expiry, of func(K) (uint32, uint8)) (deleted, kept int, err error) {
	var orphans []K // of pods that are not bound, or were not when their bindings were looked at
	err = bpf.Batches(m, func(keys []K, values []bpf.Flow) error {
		for i, k := range keys {
			pod, proto := of(k)
			switch {
			case !x.bound[pod]:
				orphans = append(orphans, k)
			case values[i].IsOver(x.now, &x.timeouts, proto) && x.stillOver(m, k, proto):
				if err := deleteFlow(m, k); err != nil {
					return err
				}
				deleted++
			default:
				kept++
			}
		}
		return nil
	})
	if err != nil || len(orphans) == 0 {
		return deleted, kept, err
	}
	// A flow is recorded while its pod is bound, and no pod id is used again: what is not bound now, after
	// the flow was seen, is gone.
	bound, err := o.boundPods()
	if err != nil {
		return deleted, kept, err
	}
	orphans = slices.DeleteFunc(orphans, func(k K) bool { pod, _ := of(k); return bound[pod] })
	for _, k := range orphans {
		if err := deleteFlow(m, k); err != nil {
			return deleted, kept, err
		}
	}
	return deleted + len(orphans), kept, nil
}

// stillOver looks again right before a flow is deleted: its key may have been opened anew.
func (x *expiry) stillOver(m *ebpf.Map, key any, proto uint8) bool {
	var f bpf.Flow
	return m.Lookup(key, &f) == nil && f.IsOver(x.now, &x.timeouts, proto)
}

func deleteFlow(m *ebpf.Map, key any) error {
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete flow: %w", err)
	}
	return nil
}

func (o *objects) timeouts() (t [8]uint32) {
	n := o.node.At(0)
	for i := range t {
		t[i] = atomic.LoadUint32(&n.Timeouts[i])
	}
	return t
}

// boundPods are the ids of pods that have an interface bound.
func (o *objects) boundPods() (map[uint32]bool, error) {
	bindings, err := o.bindings()
	bound := make(map[uint32]bool, len(bindings))
	for _, in := range bindings {
		bound[in.PodID] = true
	}
	return bound, err
}
