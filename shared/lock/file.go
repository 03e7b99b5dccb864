package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

const (
	firstPause = time.Millisecond
	maxPause   = 20 * time.Millisecond
	pausePart  = 8 // of the time that was waited so far
)

// Pause is how long who waits for another process sleeps between two looks, which cost some microseconds: not
// long at first, as most need a millisecond or two, and longer for who has waited for longer. Of hundreds of pods
// that are started at once most wait, and would keep those from the processor that they wait for.
func Pause(waited time.Duration) time.Duration {
	return min(max(waited/pausePart, firstPause), maxPause)
}

// TimeoutError says that a lock was not free in time. Trying again later may help.
type TimeoutError struct {
	Path   string        // the lock file
	Holder string        // what its holder wrote into it; empty if that is not known
	Wait   time.Duration // how long was waited for it and the locks before it
}

func (e *TimeoutError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "an unknown process"
	}
	return fmt.Sprintf("lock %s: not free after %s, held by %s", e.Path, e.Wait, holder)
}

// Timeout makes the error look like other timeouts to callers that ask.
func (e *TimeoutError) Timeout() bool { return true }

// file is one lock that is held.
type file struct {
	path string
	lock *flock.Flock
}

// acquire waits for the lock file until the deadline or the end of ctx.
func acquire(ctx context.Context, path string, start time.Time, wait time.Duration) (*file, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
	}
	for {
		f, err := try(path)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if f != nil {
			f.announce()
			return f, nil
		}
		waited := time.Since(start)
		left := wait - waited
		if left <= 0 {
			return nil, &TimeoutError{Path: path, Holder: holder(path), Wait: wait}
		}
		timer := time.NewTimer(min(Pause(waited), left))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		case <-timer.C:
		}
	}
}

// try returns nil if another holds the lock.
func try(path string) (*file, error) {
	for {
		l := flock.New(path)
		ok, err := l.TryLock()
		if errors.Is(err, os.ErrNotExist) { // the folder is missing; made here so that New does no I/O
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				return nil, err
			}
			ok, err = l.TryLock()
		}
		if err != nil || !ok {
			return nil, err
		}
		f := &file{path: path, lock: l}
		current, err := f.current()
		if err == nil && current {
			return f, nil
		}
		// Removed by its holder between our open and our lock: try the file that is there now.
		if err := errors.Join(err, l.Unlock()); err != nil {
			return nil, err
		}
	}
}

// current tells whether the locked inode is the one that others find at the path.
func (f *file) current() (bool, error) {
	ours, err := f.lock.Stat()
	if err != nil {
		return false, err
	}
	found, err := os.Stat(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(ours, found), nil
}

// announce writes who holds the lock, for the TimeoutError of others. Losing it costs a name in a
// message, so errors do not matter.
func (f *file) announce() {
	info := fmt.Sprintf("pid=%d cmd=%s since=%s\n",
		os.Getpid(), filepath.Base(os.Args[0]), time.Now().UTC().Format("2006-01-02T15:04:05.000Z"))
	_ = os.WriteFile(f.path, []byte(info), 0o600)
}

func holder(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (f *file) release() error {
	if current, err := f.current(); err == nil && current {
		_ = os.Truncate(f.path, 0)
	}
	if err := f.lock.Unlock(); err != nil {
		return fmt.Errorf("unlock %s: %w", f.path, err)
	}
	return nil
}

// remove deletes the file while its lock is still held: whoever opened it before sees that the path
// has gone, whoever comes later makes a new one.
func (f *file) remove() error {
	current, err := f.current()
	if err == nil && current {
		err = os.Remove(f.path)
	}
	if err != nil {
		err = fmt.Errorf("remove lock %s: %w", f.path, err)
	}
	return errors.Join(err, f.release())
}
