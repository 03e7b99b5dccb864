package policydir

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// A file that goes between its listing and the look at it is asked for again: its objects may be in a file that
// came after the listing.
func TestReadListsAgainWhatIsGone(t *testing.T) {
	dir := t.TempDir()
	r := NewReader(dir)
	write(t, dir, "a.yaml", namespace("a"))
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	if l := r.lookAt("a.yaml", true); !l.fresh {
		t.Errorf("look is %+v, want it to be put off", l)
	}
	if _, err := r.Read(); err != nil || r.files["a.yaml"] != nil || len(r.waiting) > 0 {
		t.Errorf("files are %v and %v wait, error %v", r.files, r.waiting, err)
	}
}

// An object that moves to another file is in force all the while, though the other one is not calm yet.
func TestReadKeepsWhatMovesToAFileThatIsNotCalm(t *testing.T) {
	dir := t.TempDir()
	r := NewReader(dir)
	r.calm = time.Hour
	write(t, dir, "a.yaml", namespace("a"))
	write(t, dir, "b.yaml", docs(namespace("b"), namespace("c")))
	step := func(want ...string) { t.Helper(); wantRead(t, r, want...) }
	step("a", "b", "c")
	write(t, dir, "d.yaml", docs(namespace("a"), namespace("c")))
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "b.yaml", namespace("b"))
	long := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "b.yaml"), long, long); err != nil {
		t.Fatal(err)
	}
	step("a", "b", "c")
	if err := os.Chtimes(filepath.Join(dir, "d.yaml"), long, long); err != nil {
		t.Fatal(err)
	}
	step("b", "a", "c")
	if len(r.waiting) > 0 {
		t.Errorf("%v wait", r.waiting)
	}
	write(t, dir, "e.yaml", namespace("e"))
	write(t, dir, "b.yaml", namespace("f"))
	if err := os.Chtimes(filepath.Join(dir, "b.yaml"), long, long); err != nil {
		t.Fatal(err)
	}
	step("b", "a", "c")
	r.waiting["b.yaml"] = time.Now().Add(-patience) // not for ever
	step("f", "a", "c")
}

// A file that is replaced all the time is never taken for one that is gone: its policy would be out of force.
func TestReadMissesNoFileThatIsBeingReplaced(t *testing.T) {
	const files = 300
	dir := testenv.Memory(t)
	name := func(i int) string { return fmt.Sprintf("n%03d", i) }
	testenv.Replace(t, dir, files, func(i int) string { return name(i) + ".yaml" }, func(i int) []byte { return []byte(namespace(name(i))) })
	r := NewReader(dir)
	for n := range 200 {
		if _, err := r.read(n%2 == 0); err != nil {
			t.Fatal(err)
		}
		if got, _ := have(r.Snapshot()); len(got) != files {
			t.Fatalf("look %d: %d objects of %d", n, len(got), files)
		}
	}
}
