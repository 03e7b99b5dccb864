package install

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEdit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(s string) {
		if err := os.WriteFile(path, []byte(s), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, have, want string
		edited           bool
	}{
		{"as expected", "from", "to", true},
		{"written meanwhile", "newer", "newer", false},
		{"done already", "to", "to", false},
	}
	for _, tt := range tests {
		write(tt.have)
		edited, err := edit(path, []byte("from"), []byte("to"), 0o640)
		if err != nil || edited != tt.edited {
			t.Errorf("%s: edited %v, %v", tt.name, edited, err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != tt.want {
			t.Errorf("%s: have %q, %v", tt.name, b, err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestCopyPlugin(t *testing.T) {
	binary, dir := filepath.Join(t.TempDir(), "latch"), filepath.Join(t.TempDir(), "opt", "cni", "bin")
	put := func(path, content string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	copied := func(want bool) {
		t.Helper()
		changed, err := copyPlugin(binary, dir)
		if err != nil || changed != want {
			t.Fatalf("changed %v, %v", changed, err)
		}
		have, err := os.ReadFile(filepath.Join(dir, "latch"))
		st, err2 := os.Lstat(filepath.Join(dir, "latch"))
		want2, _ := os.ReadFile(binary)
		if err != nil || err2 != nil || string(have) != string(want2) || st.Mode() != 0o755 {
			t.Errorf("have %q, %v, %v, %v", have, st.Mode(), err, err2)
		}
	}
	put(binary, "v1", 0o500)
	copied(true)
	copied(false)
	put(binary+"2", "v2", 0o500)
	binary += "2"
	copied(true)
	if err := os.Chmod(filepath.Join(dir, "latch"), 0o600); err != nil {
		t.Fatal(err)
	}
	copied(true)
	if err := os.Remove(filepath.Join(dir, "latch")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(dir, "latch")); err != nil {
		t.Fatal(err)
	}
	copied(true)
	if _, err := copyPlugin(binary+"3", dir); err == nil {
		t.Error("copied a binary that is not there")
	}
}
