package lock

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process holds a folder.
var ErrHeld = errors.New("held by another process")

// A holder is there for good, somebody who looks whether there is one for an instant.
const (
	folderTries = 10
	folderPause = 10 * time.Millisecond
)

// Folder takes a lock on a folder itself, for the life of the process or until release: flock(2) works on
// folders, and nothing is left behind. It does not wait for a holder. The kernel releases it when the process
// ends, however it ends.
func Folder(path string) (release func(), err error) {
	for range folderTries {
		if release, err = lockFolder(path, unix.LOCK_EX); !errors.Is(err, ErrHeld) {
			break
		}
		time.Sleep(folderPause)
	}
	return release, err
}

// FolderHeld tells whether a process holds the lock of a folder. A folder that is not there nobody holds.
func FolderHeld(path string) (bool, error) {
	release, err := lockFolder(path, unix.LOCK_SH)
	switch {
	case errors.Is(err, ErrHeld):
		return true, nil
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	release()
	return false, nil
}

func lockFolder(path string, how int) (release func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrHeld
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock folder %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
