package lock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/latch-cni/latch/shared/identity"
)

var (
	idA = identity.Of("ns", map[string]string{"app": "a"})
	idB = identity.Of("ns", map[string]string{"app": "b"})
)

func mustAcquire(t *testing.T, d Dir, ids ...identity.Identifier) *Held {
	t.Helper()
	h, err := d.Acquire(context.Background(), 10*time.Second, ids...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A second holder waits for the first, in one process too, and the error names lock and holder.
func TestSecondHolderTimesOut(t *testing.T) {
	d := New(filepath.Join(t.TempDir(), "run", "locks"))
	h := mustAcquire(t, d, idA)

	start := time.Now()
	_, err := d.Acquire(context.Background(), 50*time.Millisecond, idA)
	var timeout *TimeoutError
	if !errors.As(err, &timeout) {
		t.Fatalf("got %v, want a TimeoutError", err)
	}
	if took := time.Since(start); took < 50*time.Millisecond || took > 5*time.Second {
		t.Errorf("waited %s", took)
	}
	if want := filepath.Join(d.Path(), string(idA)+".lock"); timeout.Path != want {
		t.Errorf("path %s, want %s", timeout.Path, want)
	}
	if !strings.Contains(timeout.Holder, "pid=") || !strings.Contains(timeout.Holder, "since=") {
		t.Errorf("holder %q", timeout.Holder)
	}

	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if err := mustAcquire(t, d, idA).Release(); err != nil {
		t.Fatal(err)
	}
}

func TestOtherIdentifiersAndNodeAreFree(t *testing.T) {
	d := New(t.TempDir())
	a := mustAcquire(t, d, idA)
	b, err := d.Acquire(context.Background(), 0, idB)
	if err != nil {
		t.Fatal(err)
	}
	n, err := d.AcquireNode(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.AcquireNode(context.Background(), 0); err == nil {
		t.Error("node was locked twice")
	}
	for _, release := range []func() error{a.Release, b.Release, n.Release} {
		if err := release(); err != nil {
			t.Error(err)
		}
	}
}

// Without all locks none is kept.
func TestTimeoutGivesBackWhatWasTaken(t *testing.T) {
	d := New(t.TempDir())
	last := max(idA, idB)
	h := mustAcquire(t, d, last)
	defer h.Release()
	if _, err := d.Acquire(context.Background(), 10*time.Millisecond, idA, idB); err == nil {
		t.Fatal("lock was taken twice")
	}
	first, err := d.Acquire(context.Background(), 0, min(idA, idB))
	if err != nil {
		t.Fatalf("lock was not given back: %v", err)
	}
	_ = first.Release()
}

// The order of the arguments does not matter, and naming one twice does not block.
func TestSeveralLocksCannotDeadlock(t *testing.T) {
	d := New(t.TempDir())
	var wg sync.WaitGroup
	for i := range 8 {
		ids := []identity.Identifier{idA, idB, idA}
		if i%2 == 0 {
			ids = []identity.Identifier{idB, idA}
		}
		wg.Go(func() {
			for range 20 {
				h, err := d.Acquire(context.Background(), 20*time.Second, ids...)
				if err != nil {
					t.Error(err)
					return
				}
				if !h.Covers(idA) || !h.Covers(idB) {
					t.Error("a lock is missing")
				}
				_ = h.Release()
			}
		})
	}
	wg.Wait()
}

func TestEndOfContextEndsTheWait(t *testing.T) {
	d := New(t.TempDir())
	h := mustAcquire(t, d, idA)
	defer h.Release()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := d.Acquire(ctx, time.Minute, idA)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if _, err := d.Acquire(ctx, time.Minute, idB); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a lock that is free, after the end: %v", err)
	}
}

// The wait bounds the waiting: a holder may work for longer than it would have waited.
func TestWaitDoesNotBoundTheWork(t *testing.T) {
	d := New(t.TempDir())
	h, err := d.Acquire(context.Background(), time.Millisecond, idA)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	time.Sleep(20 * time.Millisecond)
	if !h.Covers(idA) {
		t.Error("lock ended with the wait")
	}
	if _, err := d.Acquire(context.Background(), 0, idA); err == nil {
		t.Error("lock was taken twice")
	}
}

func TestMustCover(t *testing.T) {
	d := New(t.TempDir())
	held := mustAcquire(t, d, idA)
	released := mustAcquire(t, d, idB)
	if err := released.Release(); err != nil {
		t.Fatal(err)
	}
	MustCover(held, idA)
	tests := []struct {
		name string
		do   func()
		says string
	}{
		{"no lock", func() { MustCover(nil, idA) }, "no lock"},
		{"forged lock", func() { MustCover(&Held{}, idA) }, "released"},
		{"released lock", func() { MustCover(released, idB) }, "released"},
		{"lock of another identifier", func() { MustCover(held, idB) }, "not identifier " + string(idB)},
		{"no node lock", func() { MustHoldNode(nil) }, "node"},
		{"forged node lock", func() { MustHoldNode(&NodeHeld{}) }, "node"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if msg, _ := recover().(string); !strings.Contains(msg, tt.says) {
					t.Errorf("panic %q does not say %q", msg, tt.says)
				}
			}()
			tt.do()
		})
	}
	_ = held.Release()
}

func TestReleaseTwice(t *testing.T) {
	d := New(t.TempDir())
	h := mustAcquire(t, d, idA)
	if err := errors.Join(h.ReleaseAndRemove(), h.Release(), h.ReleaseAndRemove()); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(d.Path())
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestAcquireRefusesWhatIsNoIdentifier(t *testing.T) {
	d := New(t.TempDir())
	for _, ids := range [][]identity.Identifier{nil, {""}, {"../../etc/x"}, {idA, "node"}} {
		if _, err := d.Acquire(context.Background(), 0, ids...); err == nil {
			t.Errorf("%q was locked", ids)
		}
	}
}

// A lock on an inode that others no longer find is worth nothing.
func TestLockOnRemovedFileIsNotCurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	f := &file{path: path, lock: flock.New(path)}
	if ok, err := f.lock.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	defer f.lock.Unlock()
	check := func(when string, want bool) {
		t.Helper()
		if got, err := f.current(); got != want || err != nil {
			t.Errorf("%s: current is %v, %v", when, got, err)
		}
	}
	check("after locking", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("after removal", false)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("after another made the file again", false)
}

// Whoever is about to write can find out that its lock file was removed under it.
func TestCurrent(t *testing.T) {
	d := New(t.TempDir())
	id := identity.Of("ns", nil)
	held, err := d.Acquire(context.Background(), time.Second, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Current(); err != nil {
		t.Errorf("just taken: %v", err)
	}
	if err := os.Remove(filepath.Join(d.Path(), string(id)+".lock")); err != nil {
		t.Fatal(err)
	}
	if held.Current() == nil {
		t.Error("nothing is said of a removed file")
	}
	other, err := d.Acquire(context.Background(), time.Second, id)
	if err != nil {
		t.Fatal(err)
	}
	if held.Current() == nil {
		t.Error("nothing is said of a file of another")
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	if err := other.Current(); err != nil {
		t.Errorf("the other's: %v", err)
	}
	if err := other.Release(); err != nil {
		t.Fatal(err)
	}
}
