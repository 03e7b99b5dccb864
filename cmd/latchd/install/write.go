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

func replaceFrom(path string, content io.Reader, mode fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, tempPrefix+"*"+tempSuffix)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = io.Copy(f, content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(dir)
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
