package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/damage"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/testenv"
)

// TestMain builds the binaries once and runs the tests in a process that finds them ready-made: what
// is built belongs to no test and is no leak of one.
func TestMain(m *testing.M) {
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

// on is a stage on the binaries that TestMain has built.
func on(t *testing.T) stage.Options {
	t.Helper()
	testenv.RequireRoot(t)
	b, err := harness.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Remove() })
	return stage.Options{Binaries: b}
}

// Everything that can be broken by hand is mended by the audit, and closed until then.
func TestDamage(t *testing.T) {
	err := damage.Play(t.Context(), on(t), 250*time.Millisecond, nil, func(out damage.Outcome) {
		if out.Err != nil {
			t.Errorf("%s: %v", out.Damage, out.Err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
