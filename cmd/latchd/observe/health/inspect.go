package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/view"
)

// State is how an attachment is.
type State string

// States.
const (
	Enforced     State = "enforced"
	DefaultAllow State = "default-allow"
	DefaultDeny  State = "default-deny"
	Stale        State = "stale"        // in force, by older rules than the newest
	NotInForce   State = "not-in-force" // the kernel does not do what is recorded
	Starting     State = "starting"     // its ADD has not ended, or has failed
	Gone         State = "gone"         // its interface is no more, its record is
	NotAdopted   State = "not-adopted"  // none: the pod was there before Latch, and runs without policy
)

// States lists every state.
func States() []State {
	return []State{Enforced, DefaultAllow, DefaultDeny, Stale, NotInForce, Starting, Gone, NotAdopted}
}

// Pod is an attachment of a pod.
type Pod struct {
	Namespace, Name, Identifier string
	UID                         string // of the attachment, empty if the runtime did not say
	State                       State
	Why                         string // of NotInForce and NotAdopted
}

// Finding is what an inspection saw.
type Finding struct {
	At     time.Time // zero: there was none yet
	Pods   []Pod
	Closed []view.Problem // interfaces that drop everything, and no record tells whose they are
	Err    error          // what could not be read
}

// Counts tells how many attachments there are of each state.
func (f Finding) Counts() map[State]int {
	n := map[State]int{}
	for _, p := range f.Pods {
		n[p.State]++
	}
	return n
}

// Inspector looks at the node's attachments again and again.
type Inspector struct {
	Bpffs, StateDir string
	Failing         func() map[identity.Identifier]error // identifiers whose last run failed
	Adopted         func() bool                          // the first inspection waits for it
	NotAdopted      func() []state.NotAdopted            // pods that run without policy

	closed map[view.Problem]time.Time // interfaces that were closed at the last inspection, since when

	mu    sync.Mutex
	found Finding
	look  chan struct{} // holds a token when somebody wants to know now
}

// Look asks for an inspection soon. It never blocks.
func (i *Inspector) Look() {
	select {
	case i.asked() <- struct{}{}:
	default:
	}
}

func (i *Inspector) asked() chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.look == nil {
		i.look = make(chan struct{}, 1)
	}
	return i.look
}

// While something is wrong or has just begun, it is looked at more often.
const (
	waitPeriod  = 20 * time.Millisecond
	wrongPeriod = time.Second
	lookPause   = 500 * time.Millisecond // between two that somebody asked for: each costs some 0.1 ms a pod
)

// Run inspects once in a period until the context ends.
func (i *Inspector) Run(ctx context.Context, period time.Duration) {
	var last time.Time
	for wait := waitPeriod; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-i.asked():
			if !sleep(ctx, lookPause-time.Since(last)) {
				return
			}
		}
		last = time.Now()
		if !i.Adopted() {
			continue
		}
		found := i.Inspect()
		i.mu.Lock()
		i.found = found
		i.mu.Unlock()
		if wait = period; found.reason() != "" {
			wait = min(period, wrongPeriod)
		}
	}
}

// sleep says whether the context has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Found is what the last inspection saw.
func (i *Inspector) Found() Finding {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.found
}

// Inspect asks the kernel about every attachment.
func (i *Inspector) Inspect() (found Finding) {
	found.At = time.Now()
	n, err := view.Open(i.Bpffs, i.StateDir)
	if err != nil {
		found.Err = err
		return found
	}
	defer func() { found.Err = errors.Join(found.Err, n.Close()) }()
	pods, err := n.Pods()
	found.Err = err
	failing := i.Failing()
	for _, p := range pods {
		if p.ContainerID == "" {
			continue // expected
		}
		seen := Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Identifier: p.Identifier, State: State(p.State)}
		switch p.State {
		case view.StateBroken:
			seen.State, seen.Why = classify(n.Store(), p)
		case view.StateEnforced:
			if failing[identity.Identifier(p.Identifier)] != nil {
				seen.State = Stale
			}
		}
		if seen.State != "" {
			found.Pods = append(found.Pods, seen)
		}
	}
	closed, _ := n.Closed() // about no attachment; the next inspection asks again
	found.Closed = i.lasting(closed, found.At)
	for _, p := range i.NotAdopted() {
		found.Pods = append(found.Pods, Pod{Namespace: p.Namespace, Name: p.Name, State: NotAdopted, Why: p.Reason})
	}
	return found
}

// closedFor is how long an interface drops everything until that is told: one whose pod ends is closed by DEL, and
// there until the runtime takes it away.
const closedFor = 30 * time.Second

// lasting returns the closed interfaces that have been so for long.
func (i *Inspector) lasting(closed []view.Problem, now time.Time) (lasting []view.Problem) {
	since := map[view.Problem]time.Time{}
	for _, p := range closed {
		since[p] = now
		if before, ok := i.closed[p]; ok {
			since[p] = before
		}
		if now.Sub(since[p]) >= closedFor {
			lasting = append(lasting, p)
		}
	}
	i.closed = since
	return lasting
}

// classify tells what it means that an attachment is not as recorded.
func classify(store state.Store, p view.Pod) (State, string) {
	a, err := store.ReadAttachment(p.ContainerID, p.IfName)
	if err != nil {
		return "", "" // removed meanwhile
	}
	has := func(kind string) bool {
		return slices.ContainsFunc(p.Problems, func(x view.Problem) bool { return x.Kind == kind })
	}
	switch {
	case has(view.KindGone):
		return Gone, ""
	case a.Phase != state.PhaseEnforced:
		return Starting, ""
	}
	for _, x := range p.Problems {
		if x.Kind != view.KindRules {
			return NotInForce, x.String()
		}
	}
	return Stale, ""
}

// reason says why the node is not ready by what was found, empty if it is.
func (f Finding) reason() string {
	switch {
	case f.At.IsZero():
		return "attachments have not been looked at yet"
	case f.Err != nil:
		return "attachments cannot be looked at: " + f.Err.Error()
	}
	n, first := 0, Pod{}
	for _, p := range f.Pods {
		if p.State == NotInForce {
			if n++; n == 1 {
				first = p
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d attachments are not in force: %s/%s: %s", n, len(f.Pods), first.Namespace, first.Name, first.Why)
}
