package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Temporary files have a name that runtimes do not take for a configuration or a plugin of anybody.
const (
	tempPrefix = ".latch-"
	tempSuffix = ".tmp"
)

// replace puts content into a file as a whole, so that it outlives a loss of power, and reports false if
// it is there already.
func replace(path string, content []byte, mode fs.FileMode) (bool, error) {
	have, err := os.ReadFile(path)
	if err == nil && bytes.Equal(have, content) {
		return false, nil
	}
	return true, replaceFrom(path, bytes.NewReader(content), mode)
}

func replaceFrom(path string, content io.Reader, mode fs.FileMode) error {
	temp, err := writeTemp(filepath.Dir(path), content, mode)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("write %s: %w", path, cause(err))
	}
	return syncDir(filepath.Dir(path))
}

// edit turns a file of others from one content into another, if that is still its content. It takes the
// old file out in the same step: when somebody has written meanwhile, theirs goes back, and edit reports
// false.
func edit(path string, from, to []byte, mode fs.FileMode) (bool, error) {
	temp, err := writeTemp(filepath.Dir(path), bytes.NewReader(to), mode)
	if err != nil {
		return false, fmt.Errorf("edit %s: %w", path, cause(err))
	}
	defer func() { _ = os.Remove(temp) }()
	edited := true
	for put := to; ; {
		if err := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE); err != nil {
			return false, fmt.Errorf("edit %s: %w", path, cause(err))
		}
		out, err := os.ReadFile(temp)
		if err != nil {
			return false, fmt.Errorf("edit %s: %w", path, cause(err))
		}
		if bytes.Equal(out, from) {
			return edited, syncDir(filepath.Dir(path))
		}
		put, from, edited = out, put, false // what came out is newer: back with it
	}
}

// writeTemp writes a file that replaces another one later.
func writeTemp(dir string, content io.Reader, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(dir, tempPrefix+"*"+tempSuffix)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, content)
	return f.Name(), errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

// cause returns an error without the name of the temporary file, which is another each time: what is said of
// the same problem has to be the same.
func cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove deletes a file. Nothing there is success.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweep removes temporary files that a killed process left.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) && strings.HasSuffix(e.Name(), tempSuffix) {
			err = errors.Join(err, remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// copyPlugin puts the plugin's binary into a folder of plugins, and reports false if it is there
// already. A runtime that is executing the old one goes on with that.
func copyPlugin(binary, dir string) (bool, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return false, fmt.Errorf("copy plugin: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("copy plugin: %w", err)
	}
	target := filepath.Join(dir, pluginType)
	if st, err := os.Lstat(target); err == nil && (!st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0) {
		return true, replaceFrom(target, bytes.NewReader(content), 0o755)
	}
	return replace(target, content, 0o755)
}
