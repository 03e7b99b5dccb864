package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/shared/testenv"
)

// TestMain builds the binaries once and runs the tests in a process that finds them ready-made. Called
// by the name of a plugin, it is that plugin.
func TestMain(m *testing.M) {
	if run := plugins[filepath.Base(os.Args[0])]; run != nil {
		os.Exit(plugin(run))
	}
	if os.Getenv(harness.BinariesEnv) == "" && os.Geteuid() == 0 {
		os.Exit(withBinaries())
	}
	testenv.Main(m)
}

func withBinaries() int {
	b, err := harness.Build(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = b.Remove() }()
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), harness.BinariesEnv+"="+b.Dir)
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
