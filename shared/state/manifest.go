package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Manifests is what the files of a policy directory said last, for a latchd that starts while one of them is
// broken. The zero value keeps nothing.
type Manifests struct {
	root string // of all directories
	dir  string
}

// Manifests returns what is kept of a policy directory. It does no I/O.
func (s Store) Manifests(policyDir string) Manifests {
	sum := sha256.Sum256([]byte(policyDir))
	root := filepath.Join(s.dir, dirManifests)
	return Manifests{root, filepath.Join(root, hex.EncodeToString(sum[:8]))}
}

// DeleteManifests deletes what is kept of policy directories. None is success.
func (s Store) DeleteManifests() error { return os.RemoveAll(filepath.Join(s.dir, dirManifests)) }

// Read returns what a file said. The error is fs.ErrNotExist when nothing is kept of it.
func (m Manifests) Read(name string) ([]byte, error) {
	if m.dir == "" {
		return nil, fs.ErrNotExist
	}
	return os.ReadFile(filepath.Join(m.dir, name))
}

// Write keeps what a file says, in place of what it said before.
func (m Manifests) Write(name string, content []byte) error {
	if m.dir == "" {
		return nil
	}
	return writeWhole(filepath.Join(m.dir, name), content)
}

// Retain deletes what is kept of other files than these, which are sorted, and of other directories.
func (m Manifests) Retain(names []string) error {
	if m.dir == "" {
		return nil
	}
	return errors.Join(retain(m.root, []string{filepath.Base(m.dir)}), retain(m.dir, names))
}

func retain(dir string, names []string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if _, found := slices.BinarySearch(names, e.Name()); !found {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
