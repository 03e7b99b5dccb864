package policydir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/state"
)

// TestReader restarts in every step; here is what else may happen while nobody reads.
func TestRestart(t *testing.T) {
	dir, stateDir := t.TempDir(), t.TempDir()
	start := func() *Reader {
		r := NewReader(dir)
		r.kept = state.New(stateDir).Manifests(dir)
		return r
	}
	write(t, dir, "a.yaml", namespace("a"))
	wantRead(t, start(), "a")
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	r := start()
	wantRead(t, r)
	write(t, dir, "a.yaml", broken)
	wantRead(t, r)
	wantRead(t, start()) // what a file of the name said before it was deleted is not kept

	write(t, dir, "a.yaml", namespace("a"))
	write(t, dir, "b.yaml", namespace("b"))
	wantRead(t, start(), "a", "b")
	write(t, dir, "a.yaml", "")
	for range 2 {
		r := start()
		wantRead(t, r, "a", "b")
		if _, problems := have(r.Snapshot()); len(problems) != 2 || !strings.Contains(problems[0], "a.yaml: is empty") {
			t.Errorf("problems are %q", problems)
		}
	}
}

// What is kept of a file of JSON is read again, too.
func TestRestartWithJSON(t *testing.T) {
	dir, kept := t.TempDir(), state.New(t.TempDir()).Manifests(t.TempDir())
	for _, text := range []string{`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, "{", ""} {
		write(t, dir, "a.json", text)
		r := NewReader(dir)
		r.kept = kept
		wantRead(t, r, "a")
		if r.Snapshot().Unread {
			t.Errorf("%q: not all of it is known", text)
		}
	}
}

// What cannot be kept is a problem until it is.
func TestRestartIsNotProvidedFor(t *testing.T) {
	dir, stateDir := t.TempDir(), filepath.Join(t.TempDir(), "s")
	write(t, dir, "a.yaml", namespace("a"))
	if err := os.WriteFile(stateDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := NewReader(dir)
	r.kept = state.New(stateDir).Manifests(dir)
	var said []string
	for range 2 {
		wantRead(t, r, "a")
		_, problems := have(r.Snapshot())
		said = append(said, strings.Join(problems, "; "))
	}
	if said[0] != said[1] {
		t.Errorf("said is %q", said) // and would be told again and again
	}
	if _, problems := have(r.Snapshot()); len(problems) == 0 || !strings.Contains(problems[0], "a.yaml: what it says would not outlive a restart") {
		t.Errorf("problems are %q", problems)
	}
	if err := os.Remove(stateDir); err != nil {
		t.Fatal(err)
	}
	wantRead(t, r, "a")
	if _, problems := have(r.Snapshot()); len(problems) > 0 {
		t.Errorf("problems are %q", problems)
	}
}
