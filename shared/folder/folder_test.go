package folder

import (
	"fmt"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// No file that is replaced all the time is left out.
func TestEntriesMissNoFileThatIsBeingReplaced(t *testing.T) {
	const files = 300
	dir := testenv.Memory(t)
	testenv.Replace(t, dir, files, func(i int) string { return fmt.Sprintf("%03d", i) }, func(int) []byte { return nil })
	for range 200 {
		entries, err := Entries(dir)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i, e := range entries {
			if i > 0 && entries[i-1].Name() >= e.Name() {
				t.Fatalf("%s comes before %s", entries[i-1].Name(), e.Name())
			}
			if e.Name()[0] != '.' {
				n++
			}
		}
		if n != files {
			t.Fatalf("%d files of %d", n, files)
		}
	}
}

func TestEntriesOfNoFolder(t *testing.T) {
	if _, err := Entries(t.TempDir() + "/none"); err == nil {
		t.Error("no error")
	}
}
