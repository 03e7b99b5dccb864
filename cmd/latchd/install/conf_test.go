package install

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The samples in conf are what the installation makes.
func TestSampleConfiguration(t *testing.T) {
	sample := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("..", "..", "..", "conf", "cni", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	g := newGround(t)
	g.write(primaryName, sample(primaryName))
	if err := NewFollower(g.cfg).Look(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(DefaultName), g.read(DefaultName)); diff != "" {
		t.Error(diff)
	}
}
