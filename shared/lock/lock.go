package lock

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/latch-cni/latch/shared/identity"
)

// Dir is the folder of the lock files. It is made when the first lock is taken.
type Dir struct {
	path string
}

// New returns the locks in a folder.
func New(path string) Dir { return Dir{path: path} }

// Path returns the folder.
func (d Dir) Path() string { return d.path }

// Held is the proof that its identifiers are locked. Only Acquire makes a useful one.
type Held struct {
	set
	ids []identity.Identifier
}

// NodeHeld is the proof that the node is locked. Only AcquireNode makes a useful one.
type NodeHeld struct {
	set
}

// Acquire locks all identifiers, waiting for them up to wait in all; zero tries once. Without all of
// them it holds none: it returns a *TimeoutError when the time is up, or an error that wraps the
// cause of ctx's end.
func (d Dir) Acquire(ctx context.Context, wait time.Duration, ids ...identity.Identifier) (*Held, error) {
	if len(ids) == 0 {
		return nil, errors.New("lock: no identifier given")
	}
	ids = slices.Clone(ids)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	h := &Held{ids: ids}
	paths := make([]string, len(ids))
	for i, id := range ids {
		if _, err := identity.Parse(string(id)); err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		paths[i] = filepath.Join(d.path, string(id)+".lock")
	}
	if err := h.acquire(ctx, wait, paths); err != nil {
		return nil, err
	}
	return h, nil
}

// AcquireNode locks the node, as Acquire does identifiers.
func (d Dir) AcquireNode(ctx context.Context, wait time.Duration) (*NodeHeld, error) {
	h := &NodeHeld{}
	if err := h.acquire(ctx, wait, []string{filepath.Join(d.path, "node.lock")}); err != nil {
		return nil, err
	}
	return h, nil
}

// Covers tells whether the identifier is locked by h now.
func (h *Held) Covers(id identity.Identifier) bool {
	return h != nil && h.held() && slices.Contains(h.ids, id)
}

// IDs returns the identifiers of h, sorted.
func (h *Held) IDs() []identity.Identifier { return slices.Clone(h.ids) }

// Held tells whether the node is locked by h now.
func (h *NodeHeld) Held() bool { return h != nil && h.held() }

// Current returns an error when the file of a lock is not the one that was locked any more: somebody
// removed it by hand, and another process may hold a lock of the same name.
func (h *Held) Current() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.files {
		current, err := f.current()
		if err != nil {
			return fmt.Errorf("lock %s: %w", f.path, err)
		}
		if !current {
			return fmt.Errorf("lock %s: the file was removed while the lock was held", f.path)
		}
	}
	return nil
}

// MustCover panics unless h covers the identifier: to write without the lock is a mistake of the
// program, and no error handling could put it right.
func MustCover(h *Held, id identity.Identifier) {
	switch {
	case h == nil:
		panic(fmt.Sprintf("lock: no lock given for identifier %s", id))
	case !h.held():
		panic(fmt.Sprintf("lock: lock given for identifier %s is released", id))
	case !h.Covers(id):
		panic(fmt.Sprintf("lock: lock given covers %v, not identifier %s", h.ids, id))
	}
}

// MustHoldNode panics unless the node is locked by h.
func MustHoldNode(h *NodeHeld) {
	if !h.Held() {
		panic("lock: node lock is not held")
	}
}

// set is a list of locks taken and given back together.
type set struct {
	mu    sync.Mutex
	files []*file
}

func (s *set) held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files) > 0
}

func (s *set) acquire(ctx context.Context, wait time.Duration, paths []string) error {
	start := time.Now()
	for _, path := range paths {
		f, err := acquire(ctx, path, start, wait)
		if err != nil {
			return errors.Join(err, s.Release())
		}
		s.files = append(s.files, f)
	}
	return nil
}

// Release gives the locks back. Safe to call again, also after ReleaseAndRemove.
func (s *set) Release() error { return s.end((*file).release) }

// ReleaseAndRemove gives the locks back and removes their files, for what nobody will ask about
// again. A process that waits for one of them gets a new file and goes on. Safe to call again.
func (s *set) ReleaseAndRemove() error { return s.end((*file).remove) }

func (s *set) end(each func(*file) error) error {
	s.mu.Lock()
	files := s.files
	s.files = nil
	s.mu.Unlock()
	var errs []error
	for _, f := range slices.Backward(files) {
		errs = append(errs, each(f))
	}
	return errors.Join(errs...)
}
