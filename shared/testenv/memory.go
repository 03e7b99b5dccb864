package testenv

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Memory makes a folder on a tmpfs, where files can be missing from a listing while they are replaced.
func Memory(t *testing.T) string {
	t.Helper()
	const shm = "/dev/shm"
	var fs unix.Statfs_t
	if err := unix.Statfs(shm, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		Missing(t, "no tmpfs at "+shm)
	}
	dir, err := os.MkdirTemp(shm, "latch-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Replace makes files in a folder and replaces them by rename, one after the other, until the test ends.
func Replace(t *testing.T, dir string, files int, name func(int) string, content func(int) []byte) {
	t.Helper()
	write := func(i int) {
		temp := filepath.Join(dir, ".temp")
		if err := os.WriteFile(temp, content(i), 0o600); err != nil {
			t.Error(err)
		}
		if err := os.Rename(temp, filepath.Join(dir, name(i))); err != nil {
			t.Error(err)
		}
	}
	Repeat(t, files, write)
}

// Repeat writes each of some files once, and then again and again, one after the other, until the test ends.
func Repeat(t *testing.T, files int, write func(int)) {
	t.Helper()
	for i := range files {
		write(i)
	}
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; !stop.Load(); i++ {
			write(i % files)
			time.Sleep(200 * time.Microsecond)
		}
	}()
	t.Cleanup(func() { stop.Store(true); <-done })
}
