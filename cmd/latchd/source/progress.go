package source

import (
	"slices"
	"sync"
	"time"
)

// progress is how far each kind got, and what fails.
type progress struct {
	now func() time.Time

	mu      sync.Mutex
	kinds   []*kind
	exists  map[*kind]chan struct{} // closed once the API server has the kind
	lacked  map[*kind]time.Time     // since when it says that it has not
	confirm time.Duration           // after which that is believed
	listed  map[*kind]bool          // delivered whole at least once
	failing map[string]failure      // by name of kind
	node    chan struct{}           // closed once the node's addresses are known and in use
	synced  bool
}

type failure struct {
	since time.Time
	err   error
}

func newProgress(kinds []*kind, now func() time.Time) *progress {
	p := &progress{
		now: now, kinds: kinds,
		exists: map[*kind]chan struct{}{}, lacked: map[*kind]time.Time{}, confirm: confirmAbsence,
		listed: map[*kind]bool{}, failing: map[string]failure{}, node: make(chan struct{}),
	}
	for _, k := range kinds {
		p.exists[k] = make(chan struct{})
		if !k.custom {
			close(p.exists[k])
		}
	}
	return p
}

// note takes down how the last request for a kind went. It says whether that is the first failure, or
// the end of the last one.
func (p *progress) note(name string, err error) (first, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.failing)
	f, failed := p.failing[name]
	switch {
	case err == nil:
		delete(p.failing, name)
	case failed:
		p.failing[name] = failure{f.since, err}
	default:
		p.failing[name] = failure{p.now(), err}
	}
	return before == 0 && len(p.failing) > 0, before > 0 && len(p.failing) == 0
}

// found takes over which custom kinds there are. It says whether all are, and whether it is certain of
// those that are not.
func (p *progress) found(served map[string]bool) (all, certain bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, certain = true, true
	for _, k := range p.kinds {
		if !k.custom || isClosed(p.exists[k]) { // also if it is not there any more: what was known of it stays
			continue
		}
		if served[k.resource] {
			delete(p.lacked, k)
			close(p.exists[k])
			continue
		}
		all = false
		if p.lacked[k].IsZero() {
			p.lacked[k] = p.now()
		}
		certain = certain && p.isAbsent(k)
	}
	return all, certain
}

// isAbsent says whether the API server has said for long enough that it does not have a kind.
func (p *progress) isAbsent(k *kind) bool {
	since := p.lacked[k]
	return !since.IsZero() && p.now().Sub(since) >= p.confirm
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// complete notes that a kind was delivered, and says whether it is the first time, and whether the others
// were settled without it.
func (p *progress) complete(k *kind) (first, late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first = !p.listed[k]
	p.listed[k] = true
	return first, p.synced
}

// settle says, once, that everything has been delivered, and which kinds of policies are complete.
func (p *progress) settle() (complete []string, now bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.synced || len(p.missing()) > 0 {
		return nil, false
	}
	p.synced = true
	for _, k := range p.kinds {
		if k.isPolicy && p.listed[k] {
			complete = append(complete, k.name)
		}
	}
	return complete, true
}

// missing names what has to come before everything has been delivered.
func (p *progress) missing() []string {
	var out []string
	if !isClosed(p.node) {
		out = append(out, "addresses of the node")
	}
	for _, k := range p.kinds {
		if !p.listed[k] && !p.isAbsent(k) {
			out = append(out, k.resource)
		}
	}
	return out
}

// Status is how the source is doing.
type Status struct {
	Synced  bool      // everything was delivered at least once
	Missing []string  // what has to come before that
	Absent  []string  // kinds that the API server does not have
	Held    []string  // namespaces that have not been seen and hold pods back
	Away    time.Time // since when something cannot be watched; zero while all is well
	Errors  []string  // the last one of each kind that fails, sorted
}

func (p *progress) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := Status{Synced: p.synced}
	if !p.synced {
		st.Missing = p.missing()
	}
	for _, k := range p.kinds {
		if p.isAbsent(k) {
			st.Absent = append(st.Absent, k.resource)
		}
	}
	for name, f := range p.failing {
		if st.Away.IsZero() || f.since.Before(st.Away) {
			st.Away = f.since
		}
		st.Errors = append(st.Errors, name+": "+f.err.Error())
	}
	slices.Sort(st.Errors)
	return st
}
