package policydir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A file that is being written is not read, but the others are; one that is written without end is read at last.
func TestReadWaitsForCalmOfEachFile(t *testing.T) {
	dir := t.TempDir()
	r := NewReader(dir)
	r.calm = time.Hour
	write(t, dir, "a.yaml", namespace("a"))
	step := func(want ...string) { t.Helper(); wantRead(t, r, want...) }
	step("a") // the first look waits for nothing
	write(t, dir, "a.yaml", labelled("a", "2"))
	write(t, dir, "b.yaml", namespace("b"))
	long := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "b.yaml"), long, long); err != nil {
		t.Fatal(err)
	}
	step("a", "b")
	if len(r.waiting) != 1 {
		t.Errorf("%v wait, want a.yaml", r.waiting)
	}
	r.waiting["a.yaml"] = time.Now().Add(-patience)
	step("a=2", "b")
}

// What changed in any way is read also by a look that is not thorough.
func TestReadFindsEveryChange(t *testing.T) {
	dir := t.TempDir()
	r := NewReader(dir)
	path := filepath.Join(dir, "a.yaml")
	for i := range 30 {
		old, err := os.Stat(path)
		write(t, dir, "a.yaml", labelled("a", fmt.Sprint(i%10))) // of one size, and often in the same tick
		if err == nil && i%3 == 0 {
			if err := os.Chtimes(path, old.ModTime(), old.ModTime()); err != nil {
				t.Fatal(err)
			}
		}
		changed, err := r.read(false)
		if err != nil || !changed {
			t.Fatalf("change %d: %v, %v", i, changed, err)
		}
		if i%10 == 0 {
			time.Sleep(150 * time.Millisecond)
			if changed, err := r.read(false); err != nil || changed {
				t.Fatalf("change %d read again: %v, %v", i, changed, err)
			}
			if !r.files["a.yaml"].sure {
				t.Error("a file that was not changed for long is read in every look")
			}
		}
	}
}

// wantRead has everything read, and compares the objects that are in force then.
func wantRead(t *testing.T, r *Reader, want ...string) {
	t.Helper()
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	if got, _ := have(r.Snapshot()); !slices.Equal(got, want) {
		t.Errorf("objects are %q, want %q", got, want)
	}
}
