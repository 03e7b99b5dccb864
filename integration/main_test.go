package integration_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/latch-cni/latch/integration/harness"
)

// build makes the binaries when the first test asks for them; built says whether one did.
var (
	built *harness.Binaries
	build = sync.OnceValues(func() (b *harness.Binaries, err error) {
		built, err = harness.Build(context.Background())
		return built, err
	})
)

func binaries(t *testing.T) *harness.Binaries {
	t.Helper()
	b, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	code := m.Run()
	if built == nil {
		return code
	}
	if err := built.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
