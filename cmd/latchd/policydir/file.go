package policydir

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// maxSize bounds a file: in YAML, its tree takes up to 170 times as much memory. A policy of 100,000 peers
// with ports takes half of this.
const maxSize = 16 << 20

// errNotAFile means that there is nothing to read and nothing to complain about.
var errNotAFile = errors.New("is not a file")

// errGone means that a file was listed and is not there.
var errGone = fmt.Errorf("%w any more", errNotAFile)

// errSame means that a file holds what it is known to hold.
var errSame = errors.New("has not changed")

// stamp is what a change of a file changes.
type stamp struct {
	dev, ino       uint64
	size           int64
	written, moved syscall.Timespec
}

// age is how long ago the file was written.
func (s stamp) age() time.Duration { return time.Since(time.Unix(s.written.Unix())) }

// isOld tells whether the next change will have another time: the clock of files moves in steps.
func (s stamp) isOld() bool {
	const step = 100 * time.Millisecond
	return time.Since(time.Unix(s.moved.Unix())) > step && s.age() > step
}

// stampOf looks at a regular file, through symbolic links. A name that is gone since the directory was listed
// is not a file; a symbolic link to nowhere is an error, since somebody put it there.
func stampOf(path string) (s stamp, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return s, errGone
		}
		return s, errors.New("is a symbolic link to a file that does not exist")
	}
	if err != nil {
		return s, reason(err)
	}
	if info.IsDir() {
		return s, errNotAFile
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for a writer
		return s, errors.New("is not a regular file")
	}
	st := info.Sys().(*syscall.Stat_t)
	return stamp{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// readFile reads a file of about a size, and returns its digest as well. One with the known digest, nil for
// none, is not kept in memory.
func readFile(path string, size int64, known *[sha256.Size]byte) (data []byte, sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, sum, reason(err)
	}
	defer func() { _ = f.Close() }()
	if known != nil {
		h := sha256.New()
		if _, err := io.Copy(h, io.LimitReader(f, maxSize+1)); err != nil {
			return nil, sum, reason(err)
		}
		if *known == [sha256.Size]byte(h.Sum(nil)) {
			return nil, sum, errSame
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, sum, reason(err)
		}
	}
	text := bytes.NewBuffer(make([]byte, 0, min(size, maxSize)+bytes.MinRead))
	if _, err := text.ReadFrom(io.LimitReader(f, maxSize+1)); err != nil {
		return nil, sum, reason(err)
	}
	if text.Len() > maxSize {
		return nil, sum, fmt.Errorf("is longer than %d bytes", maxSize)
	}
	return text.Bytes(), sha256.Sum256(text.Bytes()), nil
}

// reason leaves the path out of an error: problems name the file already.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s: %w", path.Op, path.Err)
	}
	return err
}
