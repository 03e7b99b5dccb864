package regress

import (
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// R5: selection changes on a live pod, by its labels, by the policy's selector, by the policy's coming
// and going. What is denied becomes so within two seconds, and a stream that is allowed all along never
// pauses.
func TestR5SelectionChangesOnLivePods(t *testing.T) {
	g := newGround(t, options{latchd: []string{"--grace", "30s", "--audit-period", "1s"}})
	b := g.pod("B", testenv.PodB)
	b.publish(nil)
	const policy = "t1/n app=b I\nI A tcp/8080"
	g.apply(policy)
	b.add()
	g.start("A", testenv.PodA)
	g.start("C", testenv.PodC)
	g.listen("B", 8080)
	stream := g.stream("A", 45000, "B", 8080, 100*time.Millisecond)
	const open, shut = "C > B tcp/8080 : allow", "C > B tcp/8080 : deny\nA > B tcp/8080 : allow"
	steady := func(what string) {
		t.Helper()
		g.flowing(what, stream, time.Second)
		g.healthy()
	}

	g.expect("1: start", shut)
	b.publish(map[string]string{"app": "free"})
	g.becomes("2: B relabelled app=free", open)
	steady("2")
	b.publish(nil)
	g.becomes("3: B relabelled app=b", shut)
	g.expect("3", shut)
	steady("3")
	g.apply("t1/n app=zz I\nI A tcp/8080")
	g.becomes("4: selector edited to app=zz", open)
	steady("4")
	g.apply(policy)
	g.becomes("5: selector back", shut)
	g.expect("5", shut)
	g.withdraw("t1/n")
	g.becomes("5: policy deleted", open)
	steady("5")

	listed := g.policy(policy).lists(b)
	g.write(listed.file(), listed.manifest())
	g.becomes("6: policy created again", shut)
	g.expect("6", shut)
	stop := g.knock(100*time.Millisecond, "C > B tcp/8080 : deny")
	// The sandbox lives on while the pod terminates: first it leaves the list, then its object goes.
	terminating := map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
	g.write(b.file(), b.manifest(nil, terminating))
	g.apply(policy)
	time.Sleep(30 * time.Second)
	if arrived := stop(); arrived != nil {
		t.Errorf("6: while B terminates: %v", arrived)
	}
	g.expect("6: while B terminates", shut)
	steady("6")
}

// A pod whose object is gone before its sandbox keeps its policy until DEL.
func TestR5ObjectGoneBeforeSandbox(t *testing.T) {
	g := newGround(t, options{latchd: []string{"--audit-period", "1s"}})
	b := g.pod("B", testenv.PodB)
	b.publish(nil)
	g.apply("t1/n app=b I\nI A tcp/8080")
	b.add()
	g.start("A", testenv.PodA)
	g.start("C", testenv.PodC)
	const shut = "C > B tcp/8080 : deny\nA > B tcp/8080 : allow"
	g.expect("start", shut)
	stop := g.knock(20*time.Millisecond, "C > B tcp/8080 : deny")
	g.remove(b.file())
	time.Sleep(1500 * time.Millisecond)
	if arrived := stop(); arrived != nil {
		t.Errorf("after the Pod object was deleted: %v", arrived)
	}
	g.expect("after the Pod object was deleted", shut)
	g.healthy()
	b.del()
	b.end()
}

// A client that terminates leaves the policy's peers: what it opens from now on is denied, what it has open
// goes on within the grace and no longer. And a pod of the same name, but with labels that no policy selects, is open from
// its first packet on, whatever its predecessor had.
func TestR5ClientTerminatesAndPodIsReplaced(t *testing.T) {
	g := newGround(t, options{latchd: []string{"--grace", "30s", "--audit-period", "1s"}})
	b := g.pod("B", testenv.PodB)
	b.publish(nil)
	g.apply("t1/n app=b I\nI A tcp/8080")
	b.add()
	a := g.start("A", testenv.PodA)
	g.start("C", testenv.PodC)
	g.listen("B", 8080)
	stream := g.stream("A", 45000, "B", 8080, 100*time.Millisecond)
	g.expect("start", "C > B tcp/8080 : deny\nA > B tcp/8080 : allow")

	g.write(a.file(), a.manifest(nil, map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}))
	g.apply("t1/n app=b I")
	const shut = "A > B tcp/8080 : deny\nC > B tcp/8080 : deny"
	g.becomes("7: A terminates and is no peer any more", shut)
	g.expect("7", shut)
	denied := time.Now()
	time.Sleep(25 * time.Second)
	g.flowing("7: within the grace", stream, 2*time.Second)
	g.expect("7: while its stream goes on", shut)
	g.healthy()
	g.cut(stream, denied, 30*time.Second)
	for _, s := range stream {
		s.close()
	}

	b.gone()
	job := g.pod("B", testenv.PodB)
	job.uid = "uid-job"
	job.publish(map[string]string{"app": "free", "job-name": "b"})
	job.add()
	g.expect("8: re-created as app=free", "C > B tcp/8080 : allow\nA > B tcp/8080 : allow")
	g.healthy()
}
