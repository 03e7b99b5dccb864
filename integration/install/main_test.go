package install

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/ready"
	"github.com/latch-cni/latch/shared/testenv"
)

// TestMain builds the binaries once and runs the tests in a process that finds them ready-made. Called
// by the name of a plugin, it is that plugin.
func TestMain(m *testing.M) {
	if run := plugins[filepath.Base(os.Args[0])]; run != nil {
		os.Exit(plugin(run))
	}
	if os.Getenv(harness.BinariesEnv) == "" && os.Geteuid() == 0 {
		os.Exit(ready.Rerun(harness.BinariesEnv, nil))
	}
	testenv.Main(m)
}
