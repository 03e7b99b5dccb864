package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/state"
)

// scene is a running pod b that a may reach and c may not.
type scene struct {
	*node
	a, b, c *pod
	policy  *policy
}

func newScene(t *testing.T, cp *controlPlane, o nodeOptions) *scene {
	t.Helper()
	n := newNode(t, cp, o)
	s := &scene{node: n, a: n.pod("a", object{"app": "a"}).add(), c: n.pod("c", object{"app": "c"}).add()}
	s.b = n.pod("b", object{"app": "b"})
	s.policy = n.newPolicy("n", object{"app": "b"}).from(8080, s.a.addrs...).apply()
	s.b.add().serve(8080)
	s.policy.lists(s.b).applyEndpoint()
	s.steady("start")
	return s
}

func (s *scene) steady(what string) {
	s.t.Helper()
	s.c.stays(what, deny, s.b, 8080, 1)
	s.a.stays(what, allow, s.b, 8080, 1)
}

// slots are the node's identifiers and where their rules are, with the generation of each.
func (s *scene) slots() map[string][2]state.SlotRef {
	s.t.Helper()
	records, err := s.store().ListIdentifiers()
	s.must(err)
	out := map[string][2]state.SlotRef{}
	for _, r := range records {
		out[string(r.Identifier)] = [2]state.SlotRef{r.Create, r.Running}
	}
	return out
}

// awaitEdit lets c in, and so proves that latchd follows the API server again.
func (s *scene) awaitEdit(patience time.Duration) {
	s.t.Helper()
	begin := time.Now()
	s.policy.from(8080, s.c.addrs...).applyEndpoint()
	s.eventually(patience, func() error { return s.c.expects(allow, s.b, 8080) })
	s.t.Logf("an edit is in force %v after it", time.Since(begin).Round(time.Millisecond))
}

// testSlowLists restarts latchd while the API server takes long to list anything (R13 e).
func testSlowLists(t *testing.T, cp *controlPlane) {
	s := newScene(t, cp, nodeOptions{})
	before := s.slots()
	s.must(s.KillLatchd())
	release := s.gate.hold("/")
	s.must(s.StartLatchd())
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		s.steady("while nothing is listed")
	}
	if st := s.status(); st.Ready || !strings.Contains(st.Message, "waiting for the API server") {
		t.Errorf("status %+v", st)
	}
	release()
	s.must(s.WaitReady(context.Background(), 20*time.Second))
	s.steady("after the lists")
	if diff := cmp.Diff(before, s.slots()); diff != "" {
		t.Errorf("a restart without news changed rules: %s", diff)
	}
	s.awaitEdit(inForce)
}

// testHangingList starts latchd while one kind cannot be listed (R13 f). The kind may hold the policy
// that closes a pod: so no pod starts meanwhile, and says why.
func testHangingList(t *testing.T, cp *controlPlane) {
	s := newScene(t, cp, nodeOptions{})
	s.must(s.KillLatchd())
	release := s.gate.hold("clusterpolicyendpoints")
	s.must(s.StartLatchd())
	remove := s.applyClusterPolicy(s.ns, object{"kubernetes.io/metadata.name": s.ns})
	d := s.pod("d", object{"app": "d"})
	if err := d.tryAdd(); err == nil || !strings.Contains(err.Error(), "code 11") {
		t.Errorf("ADD without the list of a kind: %v, want code 11: try again later", err)
	}
	s.steady("without the list of a kind")
	if st := s.status(); st.Ready || st.Message != "waiting for the API server: clusterpolicyendpoints" {
		t.Errorf("status %+v", st)
	}
	release()
	s.must(s.WaitReady(context.Background(), 20*time.Second))
	d.add()
	s.c.stays("pod that the late kind closes", deny, d, 8080, 2)
	remove()
	s.c.becomes("cluster policy removed", allow, d, 8080)
}

// testOutage takes the API server away, restarts latchd meanwhile, and brings it back.
func testOutage(t *testing.T, cp *controlPlane) {
	s := newScene(t, cp, nodeOptions{})
	defer func() {
		if cp.server.Running() != nil {
			cp.startServer(t) // the other tests need it
		}
	}()
	known := s.pod("known", object{"app": "b"})
	known.awaitRecord()
	before := s.slots()
	since := time.Now()
	s.must(cp.server.Kill())
	s.eventually(10*time.Second, func() error {
		if st := s.status(); !strings.Contains(st.Message, "cannot be followed since") {
			return fmt.Errorf("status %+v", st)
		}
		return nil
	})
	if st := s.status(); !st.Ready {
		t.Errorf("not ready without the API server: known pods could start: %+v", st)
	}
	s.must(known.tryAdd())
	s.c.stays("pod that starts without the API server", deny, known, 8080, 2)
	s.steady("without the API server")

	s.must(s.KillLatchd())
	s.must(s.StartLatchd())
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		s.steady("latchd restarted without the API server")
	}
	if st := s.status(); st.Ready {
		t.Errorf("ready, although nothing is known: %+v", st)
	}
	s.must(known.tryReAdd())
	s.c.stays("pod that starts on a record of an earlier run", deny, known, 8080, 2)

	away := time.Since(since)
	cp.startServer(t)
	begin := time.Now()
	s.must(s.WaitReady(context.Background(), 30*time.Second))
	t.Logf("ready again %v after the API server was, which was away for %v", time.Since(begin).Round(time.Millisecond), away.Round(time.Second))
	s.steady("the API server is back")
	if diff := cmp.Diff(before, s.slots()); diff != "" {
		t.Errorf("the outage changed rules: %s", diff)
	}
	s.awaitEdit(inForce)

	// This time latchd stays, and what happened meanwhile is found when the API server is back.
	s.must(cp.server.Kill())
	time.Sleep(3 * time.Second)
	known.stays("without the API server, again", deny, s.b, 8080, 2)
	cp.startServer(t)
	s.must(cp.remove(s.policy.endpointPath()))
	s.must(cp.remove(s.policy.path()))
	begin = time.Now()
	s.eventually(20*time.Second, func() error { return known.expects(allow, s.b, 8080) })
	t.Logf("followed again %v after the API server was back", time.Since(begin).Round(time.Millisecond))
	s.eventually(20*time.Second, func() error {
		if st := s.status(); st.Message != "" || !st.Ready {
			return fmt.Errorf("status %+v", st)
		}
		return nil
	})
}

// testLateKind installs the CRD of cluster policies on a running cluster.
func testLateKind(t *testing.T, cp *controlPlane) {
	const crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterpolicyendpoints.networking.k8s.aws"
	if err := cp.remove(crd); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return cp.get("/apis/networking.k8s.aws/v1alpha1/clusterpolicyendpoints", nil) != nil })
	s := newScene(t, cp, nodeOptions{})
	cp.applyFile(t, "../../conf/crds/clusterpolicyendpoints.yaml")
	waitUntil(t, func() bool { return cp.get("/apis/networking.k8s.aws/v1alpha1/clusterpolicyendpoints", nil) == nil })
	remove := s.applyClusterPolicy(s.ns, object{"kubernetes.io/metadata.name": s.ns})
	begin := time.Now()
	s.eventually(35*time.Second, func() error { return s.a.expects(deny, s.b, 8080) })
	t.Logf("policy of a kind that was added is in force after %v", time.Since(begin).Round(time.Millisecond))
	remove()
	s.a.becomes("cluster policy removed", allow, s.b, 8080)
}

func waitUntil(t *testing.T, check func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !check(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 20s")
		}
	}
}

// testOrphan takes the object of a policy away, creates it again while its watch hangs, and takes it away
// for good: what its endpoints object says holds until the API server, asked, does not have it.
func testOrphan(t *testing.T, cp *controlPlane) {
	const orphaned = 15 * time.Second // a grace of 5 s, and the question
	s := newScene(t, cp, nodeOptions{})
	d := s.pod("d", object{"app": "d"}).add() // that no edit lets in
	release := s.gate.hold("networkpolicies")
	defer release()
	s.must(s.cp.remove(s.policy.path())) // its watch still tells
	s.eventually(orphaned, func() error {
		if !strings.Contains(fmt.Sprint(s.status().Problems), "has not said") {
			return fmt.Errorf("problems are %v", s.status().Problems)
		}
		return nil
	})
	s.gate.sever()
	s.policy.apply()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		s.steady("not seen")
	}
	release()
	s.awaitEdit(inForce)
	s.must(s.cp.remove(s.policy.path()))
	s.eventually(orphaned, func() error { return d.expects(allow, s.b, 8080) })
	s.must(s.cp.remove(s.policy.endpointPath()))
}
