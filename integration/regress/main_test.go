package regress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/ready"
)

// binEnv names the folder with what TestMain has built, for the process that runs the tests.
const binEnv = "LATCH_REGRESS_BIN"

// killable is the folder below it whose latch and latchd end themselves after a step of the write
// path that LATCH_TEST_KILL_AFTER names. The other plugins are there, too.
const killable = "killable"

// TestMain builds the binaries and runs the tests in a process that finds them ready-made: what is
// built belongs to no test and is no leak of one. Called by the name of a helper, it is that helper.
func TestMain(m *testing.M) {
	if run := helpers[filepath.Base(os.Args[0])]; run != nil {
		os.Exit(run())
	}
	ready.Main(m, binEnv, buildKillable)
}

// buildKillable adds the killable binaries.
func buildKillable(ctx context.Context, b *harness.Binaries) error {
	dir := filepath.Join(b.Dir, killable)
	others, err := filepath.Glob(filepath.Join(b.Dir, "*"))
	if err := errors.Join(err, os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	for _, path := range others {
		if name := filepath.Base(path); name != "latch" && name != "latchd" {
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-tags", "latchtest", "-o", dir+"/",
		"github.com/latch-cni/latch/cmd/latch", "github.com/latch-cni/latch/cmd/latchd")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build killable binaries: %w: %s", err, out)
	}
	return nil
}

// binaries are the built binaries: those of a release, or the killable ones.
func binaries(sub ...string) *harness.Binaries {
	return &harness.Binaries{Dir: filepath.Join(append([]string{os.Getenv(binEnv)}, sub...)...)}
}
