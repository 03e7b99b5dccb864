package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/folder"
)

const (
	dirPods        = "pods"
	dirAttachments = "attachments"
	dirIdentifiers = "identifiers"
	dirLocks       = "locks"
	dirMembers     = "members"
	dirFailures    = "failures"
	dirManifests   = "manifests"
	fileSettings   = "node.json"
	fileStatus     = "status.json"

	suffix     = ".json"
	tempPrefix = ".tmp-"
)

// ErrCorrupt says that a record is there and makes no sense.
var ErrCorrupt = errors.New("corrupt record")

// Store is the records below one folder. Folders are made when something is written.
type Store struct {
	dir string
}

// New returns the records below dir. It does no I/O.
func New(dir string) Store { return Store{dir: dir} }

// Dir is the folder of the store.
func (s Store) Dir() string { return s.dir }

// LockDir is the folder for lock files.
func (s Store) LockDir() string { return filepath.Join(s.dir, dirLocks) }

func (s Store) path(dir, key string) string { return filepath.Join(s.dir, dir, key+suffix) }

// write puts v into the file as a whole: others see the old content or the new one.
func write(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write record %s: %w", path, err)
	}
	return writeWhole(path, append(b, '\n'))
}

func writeWhole(path string, content []byte) error {
	f, err := createTemp(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("write record %s: %w", path, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write record %s: %w", path, err)
	}
	return nil
}

func createTemp(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		f, err = os.CreateTemp(dir, tempPrefix+"*")
	}
	return f, err
}

// read fills v from the file. The error wraps os.ErrNotExist when there is none.
func read(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read record: %w", err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read record %s: %w: %w", path, ErrCorrupt, err)
	}
	return nil
}

// readKey reads the record that a key names.
func readKey[T any](s Store, dir, key string, of func(T) string) (r T, err error) {
	path := s.path(dir, key)
	err = read(path, &r)
	if err == nil && of(r) != key {
		err = fmt.Errorf("read record %s: %w: content belongs to %s", path, ErrCorrupt, of(r))
	}
	return r, err
}

// remove deletes the file. Nothing there is success.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete record: %w", err)
	}
	return nil
}

// list reads all records of one folder. It returns the good ones even with an error, which joins what
// is wrong with the others.
func list[T any](s Store, dir string, key func(T) string) ([]T, error) {
	found, err := names(filepath.Join(s.dir, dir))
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var records []T
	var errs []error
	for _, name := range found {
		r, err := readKey(s, dir, strings.TrimSuffix(name, suffix), key)
		switch {
		case errors.Is(err, os.ErrNotExist): // deleted since the folder was read
		case err != nil:
			errs = append(errs, err)
		default:
			records = append(records, r)
		}
	}
	return records, errors.Join(errs...)
}

// names lists the files of records.
func names(dir string) ([]string, error) {
	entries, err := folder.Entries(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var found []string
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, suffix) && !strings.HasPrefix(name, tempPrefix) {
			found = append(found, name)
		}
	}
	return found, err
}

// SweepTemp removes temporary files that a killed process left, those older than age.
func (s Store) SweepTemp(age time.Duration) error {
	var errs []error
	for _, dir := range []string{"", dirPods, dirAttachments, dirIdentifiers, dirFailures} {
		left, _ := filepath.Glob(filepath.Join(s.dir, dir, tempPrefix+"*")) // the pattern is good
		for _, path := range left {
			if st, err := os.Lstat(path); err == nil && time.Since(st.ModTime()).Abs() >= age {
				errs = append(errs, remove(path))
			}
		}
	}
	return errors.Join(errs...)
}

// RemoveFolders removes the folders of the store that are empty, its own last. It is the end of an
// uninstall: what is not empty stays, and so does the store's own folder where it is mounted, as in a
// container, whose root may be read-only besides.
func (s Store) RemoveFolders() error {
	var errs []error
	for _, dir := range []string{dirPods, dirAttachments, dirIdentifiers, dirLocks, ""} {
		path := filepath.Join(s.dir, dir)
		entries, err := os.ReadDir(path)
		if errors.Is(err, os.ErrNotExist) || len(entries) > 0 {
			continue
		}
		if err == nil {
			err = remove(path)
		}
		if dir != "" || !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EROFS) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
