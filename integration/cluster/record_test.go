package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// testRecords measures how soon after its creation a pod's record is published, and that ADD at once
// finds it.
func testRecords(t *testing.T, cp *controlPlane) {
	n := newNode(t, cp, nodeOptions{})
	var took []time.Duration
	for i := range 100 {
		p := n.pod(fmt.Sprintf("p-%d", i), object{"app": fmt.Sprintf("a-%d", i%10)})
		took = append(took, p.awaitRecord().Sub(p.created))
	}
	t.Logf("record published after the pod was created: %s", distribution(took))

	took = nil
	for i := range 3 {
		n.gate.sever()
		p := n.pod(fmt.Sprintf("cut-%d", i), object{"app": "cut"})
		took = append(took, p.awaitRecord().Sub(p.created))
	}
	t.Logf("the same while the watches are cut: %s", distribution(took))

	var adds []time.Duration
	for i := range 20 {
		p := n.pod(fmt.Sprintf("q-%d", i), object{"app": fmt.Sprintf("b-%d", i)})
		p.add()
		adds = append(adds, p.Took)
	}
	t.Logf("ADD of the chain at once after the pod was created: %s", distribution(adds))
}

func distribution(d []time.Duration) string {
	slices.Sort(d)
	at := func(q int) time.Duration { return d[(len(d)-1)*q/100].Round(100 * time.Microsecond) }
	return fmt.Sprintf("n=%d min %v p50 %v p90 %v p99 %v max %v", len(d), at(0), at(50), at(90), at(99), at(100))
}
