package cluster

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/ready"
	"github.com/latch-cni/latch/shared/testenv"
)

// TestMain builds what is needed and runs the tests in a process that finds it ready-made: what is
// built belongs to no test and is no leak of one.
func TestMain(m *testing.M) {
	if os.Getenv(harness.BinariesEnv) == "" && os.Geteuid() == 0 {
		err := buildParts()
		if err == nil {
			err = os.Setenv("CGO_ENABLED", "0") // static, as in the image
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	flag.Parse()
	_ = flag.Set("test.parallel", strconv.Itoa(daemonSets)) // they wait rather than work
	ready.Main(m, harness.BinariesEnv, nil)
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
	{"orphan", testOrphan},
	{"late-kind", testLateKind},
	{"node-addresses", testNodeAddrs},
	{"many", testMany},
	{"replace", testReplace},
	{"events", testEvents},
	{"condition", testCondition},
}

func TestCluster(t *testing.T) {
	testenv.RequireRoot(t)
	cp := startControlPlane(t, noServiceAccounts)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, cp) })
	}
}
