package policydir

import (
	"os"
	"path/filepath"
	"testing"
)

// Only what has been broken since the first look may hide something that is in force.
func TestUnread(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", docs(namespace("a"), broken))
	write(t, dir, "b.yaml", namespace("b"))
	r := NewReader(dir)
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"broken at the first look", func() {}, true},
		{"broken in another way", func() { write(t, dir, "a.yaml", broken) }, true},
		{"mended", func() { write(t, dir, "a.yaml", namespace("a")) }, false},
		{"broken again, and the last version is known", func() { write(t, dir, "a.yaml", broken) }, false},
		{"a new file that is broken", func() { write(t, dir, "c.yaml", broken) }, false},
	} {
		step.do()
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
		if got := r.Snapshot().Unread; got != step.want {
			t.Errorf("%s: unread %v, want %v", step.name, got, step.want)
		}
	}
	write(t, dir, "a.yaml", broken)
	r = NewReader(dir)
	for _, want := range []bool{true, false} {
		if _, err := r.Read(); err != nil || r.Snapshot().Unread != want {
			t.Errorf("%v: unread %v, want %v", err, r.Snapshot().Unread, want)
		}
		for _, name := range []string{"a.yaml", "c.yaml"} {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
