package lock_test

import (
	"errors"
	"os"
	"testing"

	"github.com/latch-cni/latch/shared/lock"
)

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	release, err := lock.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Folder(dir); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("held: got %v, want ErrHeld", err)
	}
	release()
	again, err := lock.Folder(dir)
	if err != nil {
		t.Fatalf("released: %v", err)
	}
	again()
	if _, err := lock.Folder(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
