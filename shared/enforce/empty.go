package enforce

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/bpf"
)

// emptier gives back slots that nothing refers to any more, all that have come by then at a time: to look at
// all bindings and to wait for readers is as much work for one slot as for a hundred. The zero value is of use.
type emptier struct {
	mu      sync.Mutex
	running bool
	now     *emptying   // is worked on
	waiting []*emptying // the last one takes what comes

	kept kept
}

// emptying are slots that are given back together.
type emptying struct {
	o     *objects
	slots []uint32
	errs  map[uint32]error // by slot; to be read when done
	done  chan struct{}
}

// emptiedTogether is how many slots are emptied at the same time: each takes some threads, which wait for
// readers of the kernel.
const emptiedTogether = 16

// freeSlots gives back every slot of an identifier that is not kept. The caller holds the identifier's lock. One to
// which an interface is bound that no record tells of is left: its next owner's rules would judge that
// interface. With later they are given back when the lock may be another's already: they have an owner as long as
// they are not empty, and nobody's record names them.
func (e *Enforcer) freeSlots(o *objects, id [16]byte, keep map[uint32]bool, later bool) error {
	free := slices.DeleteFunc(o.slotsOf(id), func(slot uint32) bool { return keep[slot] })
	if len(free) == 0 {
		return nil
	}
	batches := e.giveBack(o, id, free)
	if later {
		return nil
	}
	var errs []error
	for _, b := range batches {
		<-b.done
		for _, slot := range free {
			errs = append(errs, b.errs[slot])
		}
	}
	return errors.Join(errs...)
}

// giveBack has slots of an identifier emptied, and returns what to wait for.
func (e *Enforcer) giveBack(o *objects, id [16]byte, slots []uint32) []*emptying {
	q := &e.emptier
	q.mu.Lock()
	defer q.mu.Unlock()
	var batches []*emptying
	for _, slot := range slots {
		b := q.find(o, slot)
		if b == nil {
			if o.slots.At(int(slot)).Identifier != id {
				continue // it was given back a moment ago
			}
			if n := len(q.waiting); n == 0 || q.waiting[n-1].o != o {
				q.waiting = append(q.waiting, &emptying{o: o, errs: map[uint32]error{}, done: make(chan struct{})})
			}
			b = q.waiting[len(q.waiting)-1]
			b.slots = append(b.slots, slot)
		}
		if !slices.Contains(batches, b) {
			batches = append(batches, b)
		}
	}
	if !q.running && len(q.waiting) > 0 {
		q.running = true
		go e.emptyAll()
	}
	return batches
}

// find returns what a slot is emptied with.
func (q *emptier) find(o *objects, slot uint32) *emptying {
	for _, b := range q.all() {
		if b.o == o && slices.Contains(b.slots, slot) {
			return b
		}
	}
	return nil
}

// all are those that are worked on, and that wait.
func (q *emptier) all() []*emptying {
	if q.now == nil {
		return slices.Clone(q.waiting)
	}
	return append([]*emptying{q.now}, q.waiting...)
}

// has tells whether a slot is being given back.
func (q *emptier) has(o *objects, slot uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.find(o, slot) != nil
}

// wait returns when all that is being given back now has been, and reports whether there was any.
func (q *emptier) wait() bool {
	q.mu.Lock()
	batches := q.all()
	q.mu.Unlock()
	for _, b := range batches {
		<-b.done
	}
	return len(batches) > 0
}

// emptyAll empties slots until no more come.
func (e *Enforcer) emptyAll() {
	q := &e.emptier
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		b := q.waiting[0]
		q.now, q.waiting = b, q.waiting[1:]
		q.mu.Unlock()

		empty := e.empty(b)

		q.mu.Lock()
		for _, slot := range empty {
			b.o.disown(slot)
		}
		q.now = nil // from here on somebody else may have them
		q.mu.Unlock()
		close(b.done)
	}
}

// empty empties slots, and returns those that are.
func (e *Enforcer) empty(b *emptying) []uint32 {
	e.mu.RLock()
	current := e.objects == b.o
	e.mu.RUnlock()
	if !current {
		return nil // others took the place of the objects, and have slots of their own
	}
	fail := func(err error) []uint32 {
		e.log.Warn("slots cannot be given back, trying again with the next audit", "slots", b.slots, "error", err)
		for _, slot := range b.slots {
			b.errs[slot] = err
		}
		return nil
	}
	bound, err := b.o.boundSlots()
	if err != nil {
		return fail(err)
	}
	free := slices.DeleteFunc(slices.Clone(b.slots), func(slot uint32) bool { return bound[slot] })
	e.grace.after(time.Now()) // packets that read pod_state before the pods were moved are through
	if err := e.release(b.o, free); err != nil {
		return fail(err)
	}
	return free
}

// release empties slots that no packet can be at. They have an owner still.
func (e *Enforcer) release(o *objects, slots []uint32) error {
	return errors.Join(inParallel(slots, func(slot uint32) error {
		atomic.StoreUint32(&o.slots.At(int(slot)).Flags, bpf.SlotUsed)
		o.setSlotHash(slot, [32]byte{})
		e.forget(slot)
		if e.keep(slot) {
			return o.tables.Reset(slot)
		}
		return o.tables.Clear(slot)
	}), e.freeCounters(o, slots))
}

// inParallel does something with slots that waits for readers of the kernel, for some at the same time.
func inParallel(slots []uint32, do func(uint32) error) error {
	errs := make([]error, len(slots))
	places := make(chan struct{}, emptiedTogether)
	var wg sync.WaitGroup
	for i, slot := range slots {
		places <- struct{}{}
		wg.Go(func() {
			if err := do(slot); err != nil {
				errs[i] = fmt.Errorf("empty slot %d: %w", slot, err)
			}
			<-places
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// disown lets others have a slot that is empty.
func (o *objects) disown(slot uint32) {
	s := o.slots.At(int(slot))
	atomic.StoreUint32(&s.Flags, 0)
	after("emptied")
	s.Identifier = [16]byte{} // last: as long as it has an owner it is looked for
}

// takeBack gives back a spare slot that no packet has met.
func (e *Enforcer) takeBack(o *objects, slot uint32) error {
	if err := e.release(o, []uint32{slot}); err != nil {
		return err
	}
	o.disown(slot)
	return nil
}
