// Package ready gives the tests of a package the built binaries of the project. They are built once, by a
// process that then runs the tests in a child which finds them ready-made: what is built belongs to no
// test and is no leak of one. It is for tests only, and knows nothing of nodes: see package harness.
package ready

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/shared/testenv"
)

// Main runs the tests of a package, and exits: func TestMain(m *testing.M) { ready.Main(m, harness.BinariesEnv,
// nil) }. As root it builds the binaries, has prepare, if there is one, add to them, and runs this test binary
// again with their folder in the variable env; that run has the tests.
func Main(m *testing.M, env string, prepare func(context.Context, *harness.Binaries) error) {
	if os.Getenv(env) != "" || os.Geteuid() != 0 {
		testenv.Main(m)
	}
	code, err := rerun(context.Background(), env, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func rerun(ctx context.Context, env string, prepare func(context.Context, *harness.Binaries) error) (code int, err error) {
	b, err := harness.Build(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = b.Remove() }()
	if prepare != nil {
		if err := prepare(ctx, b); err != nil {
			return 0, err
		}
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env+"="+b.Dir)
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// Build returns a CNI_PATH with the project's binaries and the tool plugins, for the time of a test.
func Build(t *testing.T) *harness.Binaries {
	t.Helper()
	b, err := harness.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Remove(); err != nil {
			t.Error(err)
		}
	})
	return b
}
