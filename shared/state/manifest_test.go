package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// What is kept of a file is replaced whole, forgotten with the file and with another directory, and deleted at last.
func TestManifests(t *testing.T) {
	s := New(t.TempDir())
	want := func(what string, m Manifests, name, text string) {
		t.Helper()
		b, err := m.Read(name)
		if text == "" && !errors.Is(err, fs.ErrNotExist) || text != "" && (err != nil || string(b) != text) {
			t.Errorf("%s: %s is %q, %v; want %q", what, name, b, err, text)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	one, two := s.Manifests("/etc/one"), s.Manifests("/etc/two")
	must(one.Retain(nil))
	want("new", one, "a.yaml", "")
	for _, text := range []string{"first", "2"} {
		must(one.Write("a.yaml", []byte(text)))
		want("written", one, "a.yaml", text)
	}
	must(one.Write("b.yaml", []byte("b")))
	want("of another directory", two, "a.yaml", "")
	must(os.WriteFile(filepath.Join(one.dir, tempPrefix+"1"), nil, 0o600)) // of a killed process
	must(one.Retain([]string{"a.yaml"}))
	want("retained", one, "a.yaml", "2")
	want("not retained", one, "b.yaml", "")
	if left, err := os.ReadDir(one.dir); len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
	must(two.Write("a.yaml", []byte("two")))
	must(two.Retain([]string{"a.yaml"}))
	want("after another directory", one, "a.yaml", "")
	must(s.DeleteManifests())
	want("deleted", two, "a.yaml", "")
	must(s.RemoveFolders())
	if _, err := os.Stat(s.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}

	var none Manifests
	must(errors.Join(none.Write("a.yaml", []byte("a")), none.Retain(nil)))
	want("kept nowhere", none, "a.yaml", "")
}
