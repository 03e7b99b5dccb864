package enforce

import (
	"context"
	"errors"
	"fmt"
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

// Expire deletes flows and first fragments that have expired, and those of pods that are gone, and returns
// how many. The data path takes neither for any, so nobody would need to delete them, were it not for Linux:
// a table that is full, of whatever, makes room by pushing out an entry that was not looked up yet, which is
// a flow that waits for its answer and not the oldest. What the tables hold, and what has gone, is in Tables
// then.
func (e *Enforcer) Expire(ctx context.Context) (int, error) {
	e.expiring.Lock()
	defer e.expiring.Unlock()
	o, err := e.current(ctx)
	if err != nil {
		return 0, err
	}
	bound, err := o.boundPods()
	if err != nil {
		return 0, err
	}
	program, err := bpf.ProgramID(o.progs["from_pod"])
	if err != nil {
		return 0, err
	}
	x := expiry{now: bpf.Now(), timeouts: o.timeouts(), bound: bound, program: uint32(program)}
	total := 0
	var errs []error
	var found []Table
	for _, t := range bpf.Tables() {
		live, n, err := expireTable(o, x, t)
		total += n
		errs = append(errs, err)
		if err == nil {
			found = append(found, o.table(t, live))
		}
	}
	e.tables.Store(&found)
	return total, errors.Join(errs...)
}

// expiry is what decides whether an entry is dead.
type expiry struct {
	now      uint32
	timeouts [8]uint32
	bound    map[uint32]bool // pods
	program  uint32          // that is at work
}

func expireTable(o *objects, x expiry, t bpf.Table) (live, deleted int, _ error) {
	switch t {
	case bpf.TableFlows4, bpf.TableSpill4:
		return expire(o, x, t, func(k bpf.FlowKey4) uint32 { return k.Pod }, func(x *expiry, k bpf.FlowKey4, f *bpf.Flow) (bpf.End, bool) {
			return f.EndedBy(), f.IsOver(x.now, &x.timeouts, k.Proto)
		})
	case bpf.TableFlows6, bpf.TableSpill6:
		return expire(o, x, t, func(k bpf.FlowKey6) uint32 { return k.Pod }, func(x *expiry, k bpf.FlowKey6, f *bpf.Flow) (bpf.End, bool) {
			return f.EndedBy(), f.IsOver(x.now, &x.timeouts, k.Proto)
		})
	}
	return expire(o, x, t, func(k bpf.FragKey) uint32 { return k.Pod }, func(x *expiry, _ bpf.FragKey, f *bpf.Frag) (bpf.End, bool) {
		return bpf.EndExpired, f.IsOver(x.now, &x.timeouts)
	})
}

// expire deletes the dead entries of one table, and more of them when it is crowded.
func expire[K comparable, V any](o *objects, x expiry, t bpf.Table, pod func(K) uint32, over func(*expiry, K, *V) (bpf.End, bool)) (live, deleted int, err error) {
	w := walk[K, V]{o: o, x: &x, table: t, m: o.maps[t.String()], pod: pod, over: over}
	if err := w.run(); err != nil {
		return w.kept, w.deleted, err
	}
	if t >= bpf.TableFrags || float64(w.kept) < crowded*float64(w.m.MaxEntries()) {
		return w.kept, w.deleted, nil
	}
	for _, i := range []int{bpf.TimeoutTCPClosing, bpf.TimeoutTCPSyn} {
		x.timeouts[i] = min(x.timeouts[i], bpf.Stamp(hurry))
	}
	deleted = w.deleted
	w.over = func(x *expiry, k K, v *V) (bpf.End, bool) {
		_, yes := over(x, k, v)
		return bpf.EndCrowded, yes
	}
	err = w.run()
	return w.kept, deleted + w.deleted, err
}

// walk is one way through a table.
type walk[K comparable, V any] struct {
	o             *objects
	x             *expiry
	table         bpf.Table
	m             *ebpf.Map
	pod           func(K) uint32
	over          func(*expiry, K, *V) (bpf.End, bool)
	kept, deleted int
	orphans       []K // of pods that are not bound, or were not when their bindings were looked at
}

func (w *walk[K, V]) run() error {
	w.kept, w.deleted, w.orphans = 0, 0, nil
	before, err := w.o.account(w.table)
	if err != nil {
		return err
	}
	err = bpf.Batches(w.m, func(keys []K, values []V) error {
		for i, k := range keys {
			if !w.x.bound[w.pod(k)] {
				w.orphans = append(w.orphans, k)
				continue
			}
			if err := w.look(k, &values[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = w.deleteOrphans()
	}
	if err != nil {
		return err
	}
	after, err := w.o.account(w.table)
	if err != nil {
		return err
	}
	w.o.reckon(w.table, w.x.program, before, after, uint64(w.kept), uint64(w.deleted))
	return nil
}

// look deletes an entry that is over, after another look: its key may have been opened anew.
func (w *walk[K, V]) look(k K, v *V) error {
	if _, yes := w.over(w.x, k, v); !yes {
		w.kept++
		return nil
	}
	var now V
	if err := w.m.Lookup(k, &now); err != nil {
		return ignoreNotExist(err)
	}
	end, yes := w.over(w.x, k, &now)
	if !yes {
		w.kept++
		return nil
	}
	return w.delete(k, end)
}

// deleteOrphans deletes the entries of pods that are gone. An entry is made while its pod is bound, and no
// pod id is used again: what is not bound now, after the entry was seen, is gone.
func (w *walk[K, V]) deleteOrphans() error {
	if len(w.orphans) == 0 {
		return nil
	}
	bound, err := w.o.boundPods()
	if err != nil {
		return err
	}
	for _, k := range w.orphans {
		if bound[w.pod(k)] {
			w.kept++
			continue
		}
		if err := w.delete(k, bpf.EndPodGone); err != nil {
			return err
		}
	}
	return nil
}

// delete counts an entry before it is deleted, so that a process that is killed in between does not leave
// it to be taken for pushed out.
func (w *walk[K, V]) delete(k K, end bpf.End) error {
	n := &w.o.ends.At(int(w.table)).Ended[end]
	atomic.AddUint64(n, 1)
	err := w.m.Delete(k)
	if err == nil {
		w.deleted++
		return nil
	}
	atomic.AddUint64(n, ^uint64(0))
	return ignoreNotExist(err)
}

func ignoreNotExist(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return fmt.Errorf("delete flow: %w", err)
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
