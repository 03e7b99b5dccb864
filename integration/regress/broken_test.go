package regress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// A policy whose file breaks while latchd is down is in force as it was last read, also for pods that latchd has
// never seen, until the file is mended or gone.
func TestBrokenPolicyOutlivesARestart(t *testing.T) {
	g := newGround(t, options{})
	g.listen("web", 80)
	g.apply("t1/deny app=db E")
	pod := func(name, addr4, addr6 string, labels map[string]string) {
		g.start(name, testenv.PodSpec{Namespace: "t1", Name: name, Labels: labels, Addr4: addr4, Addr6: addr6})
	}
	pod("old", "10.0.1.100", "fd00:10:1::100", map[string]string{"app": "db"})
	const old, both = "old > web tcp/80 : deny", "old > web tcp/80 : deny\nnew > web tcp/80 : deny"
	g.expect("before", old)
	for _, text := range []string{"", "kind: [\n"} {
		if err := g.node.StopLatchd(); err != nil {
			t.Fatal(err)
		}
		g.write(policyFile("t1/deny"), []byte(text))
		g.startLatchd()
		g.expect("restarted", old)
	}
	pod("new", "10.0.1.101", "fd00:10:1::101", map[string]string{"app": "db", "release": "2"})
	g.expect("with a new pod", both)
	g.remove(policyFile("t1/deny"))
	g.becomes("the file is gone", "old > web tcp/80 : allow\nnew > web tcp/80 : allow")
}

// An earlier build kept nothing of the files. What is in force of one that breaks before this build has read it stays
// until the file is mended or gone.
func TestBrokenPolicyOutlivesAnUpgrade(t *testing.T) {
	g := newGround(t, options{})
	g.listen("web", 80)
	g.apply("t1/deny app=db E")
	g.start("old", testenv.PodSpec{Namespace: "t1", Name: "old", Labels: map[string]string{"app": "db"}, Addr4: "10.0.1.100", Addr6: "fd00:10:1::100"})
	const deny = "old > web tcp/80 : deny"
	g.expect("before", deny)
	held := func() {
		t.Helper()
		if err := harness.Eventually(context.Background(), 20*time.Second, func() error {
			st, err := state.New(g.node.StateDir).ReadStatus()
			if err == nil && !(st.Degraded && strings.Contains(fmt.Sprint(st.Problems), "everything stays as it is")) {
				err = fmt.Errorf("status is %+v", st)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"kind: [\n", "", "kind: [\n"} {
		if err := errors.Join(g.node.StopLatchd(), os.RemoveAll(filepath.Join(g.node.StateDir, "manifests"))); err != nil {
			t.Fatal(err)
		}
		g.write(policyFile("t1/deny"), []byte(text))
		if err := g.node.StartLatchd(); err != nil {
			t.Fatal(err)
		}
		held()
		g.expect("upgraded", deny)
	}
	if err := errors.Join(g.node.StopLatchd(), g.node.StartLatchd()); err != nil {
		t.Fatal(err)
	}
	held()
	g.expect("restarted", deny)
	g.remove(policyFile("t1/deny"))
	g.becomes("the file is gone", "old > web tcp/80 : allow")
}
