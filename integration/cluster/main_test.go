package cluster

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

// TestMain builds what is needed and runs the tests in a process that finds it ready-made: what is
// built belongs to no test and is no leak of one.
func TestMain(m *testing.M) {
	if os.Getenv(harness.BinariesEnv) != "" || os.Geteuid() != 0 {
		testenv.Main(m)
	}
	code, err := inChild()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func inChild() (int, error) {
	if err := buildParts(); err != nil {
		return 1, err
	}
	if err := os.Setenv("CGO_ENABLED", "0"); err != nil { // static, as in the image
		return 1, err
	}
	b, err := harness.Build(context.Background())
	if err != nil {
		return 1, err
	}
	defer func() { _ = b.Remove() }()
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), harness.BinariesEnv+"="+b.Dir)
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// tests share a control plane. Each has a namespace of its own, which is its name.
var tests = []struct {
	name string
	run  func(*testing.T, *controlPlane)
}{
	{"conf", testConf},
	{"records", testRecords},
	{"r5", testR5},
	{"namespace-labels", testNamespaceLabels},
	{"same-name", testSameName},
	{"completed", testCompleted},
	{"slow-lists", testSlowLists},
	{"hanging-list", testHangingList},
	{"outage", testOutage},
	{"late-kind", testLateKind},
	{"node-addresses", testNodeAddrs},
	{"many", testMany},
	{"replace", testReplace},
}

func TestCluster(t *testing.T) {
	testenv.RequireRoot(t)
	cp := startControlPlane(t, noServiceAccounts)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, cp) })
	}
}
