package lock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process holds a folder.
var ErrHeld = errors.New("held by another process")

// Folder takes a lock on a folder itself, for the life of the process or until release: flock(2) works on
// folders, and nothing is left behind. It does not wait. The kernel releases it when the process ends,
// however it ends.
func Folder(path string) (release func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrHeld
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock folder %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
