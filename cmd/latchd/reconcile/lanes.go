package reconcile

import (
	"k8s.io/client-go/util/workqueue"

	"github.com/latch-cni/latch/shared/identity"
)

// lanes is the order of the queue: identifiers for which something has changed come before those that are only
// verified, which an audit asks for by the thousand. So that these come at all, every some time one of them is
// first.
type lanes struct {
	urgent  func(identity.Identifier) bool
	changed []identity.Identifier
	others  []identity.Identifier        // some may have been taken to changed, too
	queued  map[identity.Identifier]bool // whether it is in changed
	popped  int
}

// turn is how many identifiers come from the queue for one that is only verified, if there are both.
const turn = 8

var _ workqueue.Queue[identity.Identifier] = (*lanes)(nil)

func newLanes(urgent func(identity.Identifier) bool) *lanes {
	return &lanes{urgent: urgent, queued: map[identity.Identifier]bool{}}
}

// Touch is called for what is queued and added again.
func (l *lanes) Touch(id identity.Identifier) {
	if !l.queued[id] && l.urgent(id) {
		l.changed = append(l.changed, id)
		l.queued[id] = true
	}
}

// Push adds what is not queued.
func (l *lanes) Push(id identity.Identifier) {
	urgent := l.urgent(id)
	l.queued[id] = urgent
	if urgent {
		l.changed = append(l.changed, id)
	} else {
		l.others = append(l.others, id)
	}
}

// Len is how many are queued.
func (l *lanes) Len() int { return len(l.queued) }

// Pop takes the next one. There is one.
func (l *lanes) Pop() identity.Identifier {
	l.popped++
	first, second := &l.changed, &l.others
	if l.popped%turn == 0 {
		first, second = second, first
	}
	for {
		if len(*first) == 0 {
			first, second = second, first
		}
		id := (*first)[0]
		*first = (*first)[1:]
		if _, ok := l.queued[id]; ok { // else it had its turn by the other list
			delete(l.queued, id)
			return id
		}
	}
}
