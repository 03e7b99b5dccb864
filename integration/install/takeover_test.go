package install

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// Where another policy agent is in force nothing begins, and everything says which.
func TestRefusesBesideAnotherAgent(t *testing.T) {
	g := newGround(t, options{})
	g.writePrimary(g.primary())
	a := g.openPod("a")
	agent := newOldAgent(g, 9000)
	agent.attach(a.hostInterface())
	named := func(err error) error {
		for _, want := range []string{"aws-network-policy-agent", a.hostInterface(), "/globals/aws", "--take-over"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("want an error that names %s, have %w", want, err)
			}
		}
		return nil
	}
	_, err := g.latchd("install", "--plugin", g.bin.Latch())
	if err := named(err); err != nil {
		t.Error(err)
	}
	if have := g.read(primaryName); have != g.primary() {
		t.Errorf("the configuration was touched: %s", have)
	}
	if _, err := g.network(); err != nil {
		t.Error(err)
	}
	g.check(g.node.StartLatchd())
	testenv.Eventually(t, 10*time.Second, func() error { return named(g.node.Latchd.Running()) })
	g.node.Latchd = nil
	out, err := g.node.Latchctl(t.Context(), "check")
	if err == nil || !strings.Contains(out, "aws-network-policy-agent") || !strings.Contains(out, a.hostInterface()) {
		t.Errorf("latchctl check: %v: %s", err, out)
	}
	if n := agent.filters(a.hostInterface()); n != 2 {
		t.Errorf("the agent has %d filters, want its 2", n)
	}
}

// Taking over under a flood: at no instant does a forbidden packet pass, nor is an allowed one lost. The
// agent's filters stay until Latch is in force on the interface, its pins until it has no filter left.
func TestTakeOver(t *testing.T) {
	g := newGround(t, options{latchd: []string{"--take-over"}})
	g.writePrimary(g.primary())
	a, b := g.openPod("a"), g.openPod("b")
	g.wantOpen(a, "before any agent")
	agent := newOldAgent(g, 9000)
	agent.attach(a.hostInterface())
	agent.attach(b.hostInterface())
	g.check(g.node.WriteManifest("policy.yaml", []byte(takeOverPolicy)))

	floods := []*flood{g.flood(a, "a"), g.flood(b, "b")}
	g.install("--take-over")
	g.start()
	testenv.Eventually(t, 10*time.Second, func() error {
		_, err := state.New(g.node.StateDir).ReadPod("t1", "a")
		return err
	})
	time.Sleep(3 * time.Second) // three looks
	if n := agent.filters(a.hostInterface()) + agent.filters(b.hostInterface()); n != 4 {
		t.Errorf("the agent has %d filters where Latch is not in force, want its 4", n)
	}
	for _, s := range []*sandbox{a, b} {
		other := b
		if s == b {
			other = nil
		}
		// As when latchd adopts a pod that was there before it: by the same write path.
		again := sandboxIn(s.NetNS, s.name)
		g.check(g.addBy(g.latchAlone(s.result), again))
		testenv.Eventually(t, 5*time.Second, func() error {
			if n := agent.filters(s.hostInterface()); n > 0 {
				return fmt.Errorf("the agent still has %d filters", n)
			}
			return nil
		})
		if other != nil && (agent.filters(other.hostInterface()) != 2 || agent.unpinned() == nil) {
			t.Errorf("the agent has %d filters on the other interface, want 2, and pins: %v", agent.filters(other.hostInterface()), agent.unpinned())
		}
	}
	testenv.Eventually(t, 5*time.Second, agent.unpinned)
	time.Sleep(500 * time.Millisecond)
	for _, f := range floods {
		f.end(g)
	}
}

// The policy is what the agent in force had: one port to the outside.
const takeOverPolicy = `
apiVersion: v1
kind: Pod
metadata: {namespace: t1, name: a, uid: uid-a, labels: {app: a}}
spec: {nodeName: node}
---
apiVersion: v1
kind: Pod
metadata: {namespace: t1, name: b, uid: uid-b, labels: {app: b}}
spec: {nodeName: node}
---
apiVersion: networking.k8s.aws/v1alpha1
kind: PolicyEndpoint
metadata: {namespace: t1, name: p-1}
spec:
  policyRef: {namespace: t1, name: p}
  podSelector: {}
  podIsolation: [Egress]
  podSelectorEndpoints: []
  egress:
  - cidr: 198.51.100.7
    ports: [{protocol: UDP, port: 9001}]
`

// flood sends datagrams to a forbidden port as fast as it can, and numbered ones to an allowed port.
type flood struct {
	bad, good       string // what the datagrams say
	forbidden, sent atomic.Int64
	stop            chan struct{}
	senders         sync.WaitGroup
}

func (g *ground) flood(s *sandbox, name string) *flood {
	g.t.Helper()
	dial := func(port string) net.Conn {
		c, err := s.Dial("udp", testenv.ExtWeb4+":"+port, time.Second)
		g.check(err)
		return c
	}
	return newFlood(name, dial(port), dial(allowedPort))
}

func newFlood(name string, forbidden, allowed net.Conn) *flood {
	f := &flood{bad: "forbidden from " + name, good: "allowed from " + name, stop: make(chan struct{})}
	f.send(forbidden, f.bad, 20*time.Microsecond, &f.forbidden)
	f.send(allowed, f.good, time.Millisecond, &f.sent)
	return f
}

func (f *flood) send(c net.Conn, what string, pause time.Duration, sent *atomic.Int64) {
	f.senders.Go(func() {
		defer c.Close()
		for {
			select {
			case <-f.stop:
				return
			case <-time.After(pause):
			}
			if _, err := c.Write([]byte(what)); err == nil {
				sent.Add(1)
			}
		}
	})
}

// end stops the flood and requires that all of the allowed datagrams arrived, and none of the others.
func (f *flood) end(g *ground) {
	g.t.Helper()
	close(f.stop)
	f.senders.Wait()
	testenv.Eventually(g.t, 5*time.Second, func() error {
		if n := int64(g.arrivals(f.good)); n != f.sent.Load() {
			return fmt.Errorf("%s: %d of %d arrived", f.good, n, f.sent.Load())
		}
		return nil
	})
	if n := g.arrivals(f.bad); n > 0 || f.forbidden.Load() < 1000 || f.sent.Load() < 1000 {
		g.t.Errorf("%s: %d of %d arrived (%d were allowed)", f.bad, n, f.forbidden.Load(), f.sent.Load())
	}
}
