package policydir

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// watching runs Watch on a directory and lets a test wait for what it delivers.
type watching struct {
	t         *testing.T
	snapshots chan Snapshot
	last      Snapshot
}

func watch(t *testing.T, dir string, opts Options) *watching {
	t.Helper()
	w := &watching{t: t, snapshots: make(chan Snapshot, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Watch(ctx, dir, opts, func(s Snapshot) { w.snapshots <- s })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("watch: %v", err)
		}
	})
	return w
}

// want waits until exactly these objects are in force.
func (w *watching) want(objects ...string) {
	w.t.Helper()
	deadline := time.After(5 * time.Second)
	for {
		select {
		case w.last = <-w.snapshots:
			if have, _ := have(w.last); slices.Equal(have, objects) {
				return
			}
		case <-deadline:
			have, problems := have(w.last)
			w.t.Fatalf("objects are %q, want %q; problems %q", have, objects, problems)
		}
	}
}

// eventsOnly leaves the rescan out.
var eventsOnly = Options{Rescan: time.Hour}

func TestWatchFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	w := watch(t, dir, eventsOnly)
	w.want()

	write(t, dir, "a.yaml", labelled("a", "1"))
	w.want("a=1")

	write(t, dir, "a.yaml", labelled("a", "2")) // in place
	w.want("a=2")

	write(t, dir, "new.tmp", labelled("a", "3")) // replaced by rename
	if err := os.Rename(filepath.Join(dir, "new.tmp"), path); err != nil {
		t.Fatal(err)
	}
	w.want("a=3")

	write(t, dir, "a.yaml", labelled("a", "4")) // the new inode is watched too
	w.want("a=4")

	outside := t.TempDir()
	write(t, outside, "x", labelled("a", "5"))
	if err := os.Symlink(filepath.Join(outside, "x"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "link"), path); err != nil {
		t.Fatal(err)
	}
	w.want("a=5")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.want()
}

// TestWatchVolume swaps ..data as Kubernetes does when it updates a volume.
func TestWatchVolume(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) {
		real := fmt.Sprintf("..v%d", n)
		if err := os.Mkdir(filepath.Join(dir, real), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, real), "a.yaml", labelled("a", fmt.Sprint(n)))
		if err := os.Symlink(real, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version(1)
	if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	w := watch(t, dir, eventsOnly)
	w.want("a=1")
	for n := 2; n < 5; n++ {
		version(n)
		w.want(fmt.Sprintf("a=%d", n))
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..v%d", n-1))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatchDirectorySwap replaces the directory: a link to it, and the directory itself.
func TestWatchDirectorySwap(t *testing.T) {
	base := t.TempDir()
	for _, v := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(base, "v"+v), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(base, "v"+v), "a.yaml", labelled("a", v))
	}
	dir := filepath.Join(base, "current")
	point := func(to string) {
		if err := os.Symlink(to, dir+".tmp"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir+".tmp", dir); err != nil {
			t.Fatal(err)
		}
	}
	point("v1")
	w := watch(t, dir, eventsOnly)
	w.want("a=1")
	point("v2")
	w.want("a=2")
	write(t, filepath.Join(base, "v2"), "a.yaml", labelled("a", "3")) // the new one is watched
	w.want("a=3")

	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	w.want("a=3") // delivered again, with the problem
	if _, problems := have(w.last); len(problems) != 1 || !strings.Contains(problems[0], "stays in force") {
		t.Errorf("problems %q, want the missing directory", problems)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.yaml", labelled("a", "4"))
	w.want("a=4")
}

// TestWatchRescan finds an edit behind a symbolic link, of which there is no event.
func TestWatchRescan(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, "x", labelled("a", "1"))
	if err := os.Symlink(filepath.Join(outside, "x"), filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	w := watch(t, dir, Options{Rescan: 20 * time.Millisecond})
	w.want("a=1")
	write(t, outside, "x", labelled("a", "2"))
	w.want("a=2")
}

// TestWatchWritesInPieces never delivers a snapshot without the object of a file that is being written
// over in place, in pieces that follow each other faster than the debounce.
func TestWatchWritesInPieces(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", labelled("a", "1"))
	w := watch(t, dir, Options{Rescan: time.Hour, Debounce: 500 * time.Millisecond, Longest: time.Minute})
	w.want("a=1")
	text := labelled("a", "2")
	f, err := os.Create(filepath.Join(dir, "a.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		if _, err := f.WriteString(text[i : i+1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Millisecond)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case s := <-w.snapshots:
			objects, _ := have(s)
			if len(objects) != 1 || !strings.HasPrefix(objects[0], "a") {
				t.Fatalf("objects are %q while a.yaml is written", objects)
			}
			if objects[0] == "a=2" {
				return
			}
		case <-time.After(5 * time.Second):
			t.Fatal("edit was never delivered")
		}
	}
}

func TestWatchWithoutDirectory(t *testing.T) {
	err := Watch(t.Context(), filepath.Join(t.TempDir(), "none"), Options{}, func(Snapshot) {})
	if err == nil || !strings.HasPrefix(err.Error(), "read policy directory: ") {
		t.Errorf("error is %v", err)
	}
}
