package regress

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// R4: no two pods share a fate by name. Each pair below was once one pod to somebody: by a suffix cut
// off, by names glued together, by a dot turned into a dash.
func TestR4NoTwoPodsShareAFateByName(t *testing.T) {
	const long = "nightly-ledger-reconciliation-and-archive-exporter-x"
	pods := []struct {
		namespace, name string
		isolated        bool
	}{
		{"t1", "web-a", true},
		{"t1", "web-b", false},
		{"b-c", "x-1", true},
		{"c", "x-b-1", false},
		{"ab", "c", true},
		{"a", "bc", false},
		{"t1", long + "-29811w8k2c", true},
		{"t1", long + "-29812h5t9v", false},
		{"t1", "svc.v1-abc12", true},
		{"t1", "svc-v1-abc12", false},
		{"t1", strings.Repeat("n", 253), true},
	}
	if len(long) != 52 {
		t.Fatal("the name has another length")
	}
	g := newGround(t, options{})
	g.listen("web", 80)
	var table []string
	var denied []*pod
	var open []*stream
	for i, c := range pods {
		name, label := fmt.Sprintf("x%d", i+1), fmt.Sprintf("x%d", i+1)
		spec := testenv.PodSpec{Namespace: c.namespace, Name: c.name, Labels: map[string]string{"app": label},
			Addr4: fmt.Sprintf("10.0.1.%d", 100+i), Addr6: fmt.Sprintf("fd00:10:1::%d", 100+i)}
		if c.isolated {
			g.apply(fmt.Sprintf("%s/deny-%s app=%s E", c.namespace, label, label))
		}
		p := g.start(name, spec)
		if c.isolated {
			denied = append(denied, p)
			table = append(table, name+" > web tcp/80 : deny")
			continue
		}
		table = append(table, name+" > web tcp/80 : allow")
		open = append(open, g.stream(name, 0, "web", 80, 50*time.Millisecond)...)
	}
	all := strings.Join(table, "\n")
	g.expect("all pods", all)
	g.healthy()

	for _, p := range denied[:len(denied)-1] {
		p.gone()
	}
	var rest []string
	for _, line := range table {
		if strings.HasSuffix(line, "allow") || strings.HasPrefix(line, "x11 ") {
			rest = append(rest, line)
		}
	}
	left := strings.Join(rest, "\n")
	g.expect("denied pods are deleted", left)
	if err := g.node.StopLatchd(); err != nil {
		t.Fatal(err)
	}
	g.expect("latchd is stopped", left)
	g.startLatchd()
	g.expect("latchd is restarted", left)
	g.apply("t1/deny-x11 app=x11 E\nE web tcp/80")
	g.becomes("policy of the longest name gains a rule", "x11 > web tcp/80 : allow")
	g.flowing("open flows of allowed pods", open, time.Second)
	g.healthy()
}
