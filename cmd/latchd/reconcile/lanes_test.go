package reconcile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/client-go/util/workqueue"

	"github.com/latch-cni/latch/shared/identity"
)

// A change does not wait behind an audit, and an audit ends while changes go on.
func TestChangesComeFirst(t *testing.T) {
	urgent := map[identity.Identifier]bool{}
	q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[identity.Identifier]{
		Queue: newLanes(func(id identity.Identifier) bool { return urgent[id] }),
	})
	name := func(i int) identity.Identifier { return identity.Identifier(fmt.Sprint(i)) }
	for i := range 1000 {
		q.Add(name(i))
	}
	urgent[name(500)] = true
	q.Add(name(500)) // is queued already
	urgent["new"] = true
	q.Add("new")
	var first []identity.Identifier
	for range 4 {
		id, _ := q.Get()
		q.Done(id)
		first = append(first, id)
	}
	if want := []identity.Identifier{name(500), "new", name(0), name(1)}; !slices.Equal(first, want) {
		t.Errorf("got %v, want %v", first, want)
	}
	seen := map[identity.Identifier]bool{}
	for n := 0; len(seen) < 998 && n < 10_000; n++ {
		q.Add("new") // is always changed
		id, _ := q.Get()
		q.Done(id)
		seen[id] = true
	}
	if len(seen) != 998 { // 997 are left of 1000, and the new one
		t.Errorf("%d identifiers had their turn, want 998", len(seen))
	}
}

// Whatever is added, each comes once for all that was added of it before.
func TestLanesLoseNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	l := newLanes(func(identity.Identifier) bool { return r.IntN(2) == 0 })
	queued := map[identity.Identifier]bool{}
	for range 100_000 {
		id := identity.Identifier(fmt.Sprint(r.IntN(50)))
		switch {
		case r.IntN(2) == 0 && len(queued) > 0:
			got := l.Pop()
			if !queued[got] {
				t.Fatalf("%s came and was not queued", got)
			}
			delete(queued, got)
		case queued[id]:
			l.Touch(id)
		default:
			l.Push(id)
			queued[id] = true
		}
		if l.Len() != len(queued) {
			t.Fatalf("%d are queued, want %d", l.Len(), len(queued))
		}
	}
	if n := len(l.changed) + len(l.others); n > 1000 {
		t.Errorf("%d entries are kept for 50 identifiers", n)
	}
}
