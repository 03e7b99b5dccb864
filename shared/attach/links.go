package attach

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/pins"
)

// ErrTooMany says that no more links can be held. Those that are not are as safe as their pins.
var ErrTooMany = errors.New("too many links to hold them all open")

// Links holds links of tcx open. The only reference to a link is its pin otherwise, and whoever deletes
// that takes the program off the interface. It is safe for concurrent use; the zero value is not useful.
type Links struct {
	limit int

	mu    sync.Mutex
	held  map[string]map[string]link.Link // by owner and pin
	count int
}

// NewLinks makes an empty set. It will not use more than half of the descriptors that the process may have.
func NewLinks() *Links {
	l := &Links{limit: 4096, held: map[string]map[string]link.Link{}}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		l.limit = int(min(lim.Cur/2, uint64(l.limit)))
	}
	return l
}

// Hold holds the link that is pinned for one side of an interface, in place of one that was held for it
// before. When the pin is gone, or names something else, and the link that was held is attached still, it
// pins that again and reports true. No link at all is no error. Safe to call again.
func (l *Links) Hold(owner string, ifindex int, s Side, pin string) (repinned bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.held[owner][pin]
	now, err := openLink(pin, ifindex, s.hook())
	switch {
	case now != nil:
		return false, l.put(owner, pin, held, now.Link)
	case held != nil && attachedTo(held, ifindex, s.hook()):
		return l.pin(held, pin)
	case err != nil:
		return false, fmt.Errorf("hold link: %w", err)
	}
	l.drop(owner, pin)
	return false, nil
}

// put takes over a link that was just opened, unless it is the one that is held.
func (l *Links) put(owner, pin string, held, now link.Link) error {
	if held != nil {
		same, err := sameLink(held, now)
		if err != nil || same {
			return errors.Join(err, now.Close())
		}
		l.drop(owner, pin)
	}
	if l.count >= l.limit {
		_ = now.Close()
		return fmt.Errorf("hold link %s: %w", pin, ErrTooMany)
	}
	if l.held[owner] == nil {
		l.held[owner] = map[string]link.Link{}
	}
	l.held[owner][pin] = now
	l.count++
	return nil
}

func (l *Links) pin(held link.Link, pin string) (bool, error) {
	o, ok := held.(pins.Object)
	if !ok {
		return false, fmt.Errorf("link of type %T cannot be pinned", held)
	}
	err := pins.PinAtomic(o, pin)
	return err == nil, err
}

func (l *Links) drop(owner, pin string) {
	held, ok := l.held[owner][pin]
	if !ok {
		return
	}
	_ = held.Close()
	delete(l.held[owner], pin)
	l.count--
	if len(l.held[owner]) == 0 {
		delete(l.held, owner)
	}
}

// Release lets the links of an owner go. What is pinned stays.
func (l *Links) Release(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for pin := range l.held[owner] {
		l.drop(owner, pin)
	}
}

// Keep lets the links of all other owners go.
func (l *Links) Keep(owner func(string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o := range l.held {
		if owner(o) {
			continue
		}
		for pin := range l.held[o] {
			l.drop(o, pin)
		}
	}
}

// Len is how many links are held.
func (l *Links) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

func sameLink(a, b link.Link) (bool, error) {
	ia, err := a.Info()
	if err != nil {
		return false, fmt.Errorf("read link: %w", err)
	}
	ib, err := b.Info()
	if err != nil {
		return false, fmt.Errorf("read link: %w", err)
	}
	return ia.ID == ib.ID, nil
}

// attachedTo tells whether a link is on a hook of an interface still.
func attachedTo(l link.Link, ifindex int, h hook) bool {
	info, err := l.Info()
	if err != nil {
		return false
	}
	t := info.TCX()
	return t != nil && int(t.Ifindex) == ifindex && ebpf.AttachType(t.AttachType) == h.tcx
}
