package policydir

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/state"
)

// Only what has been broken or empty since the first look may hide something that is in force, and only if nothing is
// kept of what it said before. A restart changes nothing of that.
func TestUnread(t *testing.T) {
	dir, kept := t.TempDir(), state.New(t.TempDir()).Manifests(t.TempDir())
	put := func(name, text string) func() { return func() { write(t, dir, name, text) } }
	remove := func(name string) func() {
		return func() {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	link := func() {
		if err := os.Symlink("nowhere", filepath.Join(dir, "d.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "a.yaml", docs(namespace("a"), broken))
	write(t, dir, "b.yaml", namespace("b"))
	var r *Reader
	look := func(step string, want bool) {
		t.Helper()
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
		if got := r.Snapshot().Unread; got != want {
			t.Errorf("%s: unread %v, want %v", step, got, want)
		}
	}
	for _, step := range []struct {
		name string
		down bool // it is done while nobody reads
		do   func()
		want bool
	}{
		{"broken at the first look", true, func() {}, true},
		{"broken in another way", false, put("a.yaml", broken), true},
		{"empty", false, put("a.yaml", ""), true},
		{"mended", false, put("a.yaml", namespace("a")), false},
		{"broken again, and the last version is known", false, put("a.yaml", broken), false},
		{"a new file that is broken", false, put("c.json", broken), false},
		{"deleted", false, func() { remove("a.yaml")(); remove("c.json")() }, false},
		{"a new file that is empty, and perhaps was not", true, put("a.yaml", ""), true},
		{"with a comment", false, put("a.yaml", "#\n"), false},
		{"a new file that cannot be read, and perhaps could be", true, link, true},
		{"deleted, too", true, remove("d.yaml"), false},
		{"broken while nobody reads, and the last version is known", true, put("b.yaml", broken), false},
	} {
		step.do()
		if step.down {
			r = NewReader(dir)
			r.kept = kept
		}
		look(step.name, step.want)
		r = NewReader(dir)
		r.kept = kept
		look(step.name+", restarted", step.want)
	}
}

// What is kept and cannot be read, of a file that is broken, is not lost without a word, and not overwritten by less.
func TestKeptCannotBeRead(t *testing.T) {
	damage := map[string]func(path string, good []byte) error{
		"emptied": func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
		"cut off": func(path string, good []byte) error { return os.WriteFile(path, good[:len(good)/3], 0o600) },
		"cut off behind a document": func(path string, good []byte) error {
			return os.WriteFile(path, good[:bytes.LastIndex(good, []byte("---"))], 0o600)
		},
		"damaged":  func(path string, good []byte) error { good[6] = '{'; return os.WriteFile(path, good, 0o600) },
		"a folder": func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	}
	for name, damage := range damage {
		t.Run(name, func(t *testing.T) {
			dir, stateDir := t.TempDir(), t.TempDir()
			start := func() *Reader {
				r := NewReader(dir)
				r.kept = state.New(stateDir).Manifests(dir)
				return r
			}
			write(t, dir, "a.yaml", docs(namespace("a"), namespace("b")))
			wantRead(t, start(), "a", "b")
			found, err := filepath.Glob(filepath.Join(stateDir, "manifests", "*", "a.yaml"))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			good, err := os.ReadFile(found[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(found[0], good); err != nil {
				t.Fatal(err)
			}
			damaged, _ := os.ReadFile(found[0])
			for range 2 {
				r := start()
				for _, text := range []string{broken, docs(namespace("c"), broken), ""} {
					write(t, dir, "a.yaml", text)
					if _, err := r.Read(); err != nil {
						t.Fatal(err)
					}
					s := r.Snapshot()
					_, problems := have(s)
					said := slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, "a.yaml: what it said before cannot be read: ") })
					if now, _ := os.ReadFile(found[0]); !s.Unread || !said || string(now) != string(damaged) {
						t.Errorf("%q: unread %v, problems %q, kept is %q", text, s.Unread, problems, now)
					}
				}
			}
		})
	}
}
