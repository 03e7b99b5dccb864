package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// BPFFS mounts a fresh bpffs and returns its folder. What is pinned there ends with the test.
func BPFFS(t testing.TB) string {
	t.Helper()
	RequireRoot(t)
	dir := filepath.Join(t.TempDir(), "bpf")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpffs", dir, "bpf", 0, "mode=0700"); err != nil {
		t.Fatalf("mount bpffs on %s: %v", dir, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}

// StateDir returns a fresh folder for records and locks.
func StateDir(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "run")
}
