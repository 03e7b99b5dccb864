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
	for path, want := range map[string]bool{dir: true, dir + "/none": false, t.TempDir(): false} {
		for range 2 { // it leaves nothing held
			if held, err := lock.FolderHeld(path); err != nil || held != want {
				t.Errorf("%s: held %v, %v, want %v", path, held, err, want)
			}
		}
	}
	release()
	if held, err := lock.FolderHeld(dir); err != nil || held {
		t.Errorf("released: held %v, %v", held, err)
	}
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
