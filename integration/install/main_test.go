package install

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/ready"
)

// TestMain builds the binaries once and runs the tests in a process that finds them ready-made. Called
// by the name of a plugin, it is that plugin.
func TestMain(m *testing.M) {
	if run := plugins[filepath.Base(os.Args[0])]; run != nil {
		os.Exit(plugin(run))
	}
	ready.Main(m, harness.BinariesEnv, nil)
}
