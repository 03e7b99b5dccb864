package cluster

import (
	"fmt"
	"testing"
	"time"
)

// testR5 changes what selects a running pod: its labels, the policy, and the end of its life.
func testR5(t *testing.T, cp *controlPlane) {
	const grace = 5 * time.Second
	n := newNode(t, cp, nodeOptions{args: []string{"--grace", grace.String()}})
	a, c := n.pod("a", object{"app": "a"}).add(), n.pod("c", object{"app": "c"}).add()
	b := n.pod("b", object{"app": "b"})
	p := n.newPolicy("n", object{"app": "b"}).from(8080, a.addrs...).apply()
	b.awaitRecord()
	b.add().serve(8080)
	p.lists(b).applyEndpoint()
	live := a.stream(45000, b, 8080)
	steady := func(what string) {
		t.Helper()
		if err := live.flows(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}

	c.stays("1: start", deny, b, 8080, 3)
	b.relabel(object{"app": "free"})
	c.becomes("2: relabelled app=free", allow, b, 8080)
	b.relabel(object{"app": "b"})
	c.becomes("3: relabelled app=b", deny, b, 8080)
	steady("3")
	p.selects(object{"app": "zz"})
	c.becomes("4: selector edited", allow, b, 8080)
	p.selects(object{"app": "b"})
	c.becomes("5: selector back", deny, b, 8080)
	p.remove()
	c.becomes("5: policy deleted", allow, b, 8080)
	steady("5")

	p.apply()
	c.becomes("6: policy created again", deny, b, 8080)
	b.terminate()
	p.lists().applyEndpoint()
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		c.stays("6: terminating and not listed", deny, b, 8080, 1)
	}
	steady("6")
	b.forget()
	c.stays("6: the object is gone, the sandbox is not", deny, b, 8080, 4)
	steady("6")
	live.close()
	b.del()

	b.create(object{"app": "b"})
	b.add().serve(8080)
	p.lists(b).applyEndpoint()
	live = a.stream(45001, b, 8080)
	a.terminate()
	p.peers = []object{}
	gone := time.Now()
	p.applyEndpoint()
	a.becomes("7: the client terminates and is not a peer any more", deny, b, 8080)
	c.stays("7", deny, b, 8080, 1)
	if time.Since(gone) < grace-time.Second {
		if err := live.flows(); err != nil {
			t.Errorf("7: within the grace: %v", err)
		}
	}
	n.eventually(grace+time.Second-time.Since(gone)+2*time.Second, func() error {
		if live.silent() < time.Second {
			return fmt.Errorf("7: the stream is alive %v after its rule went", time.Since(gone))
		}
		return nil
	})
	live.close()

	b.forget()
	b.del()
	b.create(object{"app": "free"})
	b.add()
	c.stays("8: re-created as app=free", allow, b, 8080, 1)
}
