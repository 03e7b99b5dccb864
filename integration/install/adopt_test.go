package install

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// A node of the agent in use, with pods that Latch never saw: started with --take-over, latchd adopts them,
// and only then the other's filters go. What both allow goes on without a loss, in either direction; of what
// both deny nothing passes, at no instant, though connection tracking remembers these flows from a time when
// they were allowed and answered.
func TestTakeOverOfPodsThatLatchNeverSaw(t *testing.T) {
	g := newGround(t, options{latchd: []string{"--take-over"}})
	g.track()
	g.writePrimary(g.primary())
	pods := []*sandbox{g.openPod("a"), g.openPod("b")}
	var into [][2]net.Conn
	var streams []net.Conn
	for _, s := range pods {
		for _, p := range []string{port, allowedPort} {
			g.listen(s.NetNS, s.addr()+":"+p)
		}
		into = append(into, [2]net.Conn{g.greet(g.Ext, s.addr()+":"+port), g.greet(g.Ext, s.addr()+":"+allowedPort)})
		s.ListenTCP(t, s.addr()+":8080")
		streams = append(streams, g.connect(g.Ext, s.addr()+":8080"))
	}
	g.Ext.ListenTCP(t, testenv.ExtWeb4+":8080")
	streams = append(streams, g.connect(pods[0].NetNS, testenv.ExtWeb4+":8080"))
	out := g.greet(pods[0].NetNS, testenv.ExtWeb4+":"+port)

	agent := newOldAgent(g, 9000)
	var floods []*flood
	for i, s := range pods {
		agent.attach(s.hostInterface())
		floods = append(floods, newFlood("outside into "+s.name, into[i][0], into[i][1]))
	}
	allowed, err := pods[0].Dial("udp", testenv.ExtWeb4+":"+allowedPort, time.Second)
	g.check(err)
	floods = append(floods, newFlood("a", out, allowed), g.flood(pods[1], "b"))
	manifests := adoptPolicy
	for _, s := range pods {
		manifests += fmt.Sprintf("---\n{apiVersion: v1, kind: Pod, metadata: {namespace: t1, name: %s, uid: uid-%s, labels: {app: %s}}, "+
			"spec: {nodeName: node}, status: {phase: Running, podIP: %s}}\n", s.name, s.name, s.name, s.addr())
	}
	g.check(g.node.WriteManifest("policy.yaml", []byte(manifests)))

	g.install("--take-over")
	g.start()
	testenv.Eventually(t, 20*time.Second, agent.unpinned)
	for _, s := range pods {
		if n := agent.filters(s.hostInterface()); n > 0 {
			t.Errorf("the agent still has %d filters on pod %s", n, s.name)
		}
	}
	atts, err := state.New(g.node.StateDir).ListAttachments()
	g.check(err)
	if len(atts) != 2 || !atts[0].Adopted || !atts[1].Adopted {
		t.Errorf("attachments %+v, want the two that were adopted", atts)
	}
	for _, c := range streams {
		if err := testenv.Echo(c); err != nil {
			t.Errorf("connection %s > %s: %v", c.LocalAddr(), c.RemoteAddr(), err)
		}
	}
	for _, f := range floods {
		testenv.Eventually(t, 20*time.Second, f.enough)
	}
	for _, f := range floods {
		f.end(g)
	}
}

// adoptPolicy is what the agent in force had: one port in either direction, and TCP.
const adoptPolicy = `
apiVersion: networking.k8s.aws/v1alpha1
kind: PolicyEndpoint
metadata: {namespace: t1, name: p-1}
spec:
  policyRef: {namespace: t1, name: p}
  podSelector: {}
  podIsolation: [Ingress, Egress]
  podSelectorEndpoints: []
  ingress:
  - cidr: 0.0.0.0/0
    ports: [{protocol: UDP, port: 9001}, {protocol: TCP, port: 8080}]
  egress:
  - cidr: 198.51.100.7
    ports: [{protocol: UDP, port: 9001}, {protocol: TCP, port: 8080}]
`

// track makes the kernel track connections, as on a node with kube-proxy.
func (g *ground) track() {
	g.t.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		testenv.Missing(g.t, "nft is not installed")
	}
	cmd := exec.Command(path, "-f", "-")
	cmd.Stdin = strings.NewReader("table inet states {\n chain forward {\n  type filter hook forward priority filter;\n  ct state established,related accept\n }\n}\n")
	g.Node.MustDo(g.t, cmd.Run)
}

// greet sends a datagram to one of listen and waits for its answer.
func (g *ground) greet(ns *testenv.NetNS, addr string) net.Conn {
	g.t.Helper()
	c, err := ns.Dial("udp", addr, time.Second)
	g.check(err)
	b := make([]byte, 16)
	testenv.Eventually(g.t, 5*time.Second, func() error {
		if _, err := c.Write([]byte(greeting)); err != nil {
			return err
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		_, err := c.Read(b)
		return err
	})
	return c
}

// connect opens a connection to an echo server, and has it answer once.
func (g *ground) connect(ns *testenv.NetNS, addr string) net.Conn {
	g.t.Helper()
	c, err := ns.Dial("tcp", addr, 5*time.Second)
	g.check(err)
	g.t.Cleanup(func() { _ = c.Close() })
	g.check(c.SetDeadline(time.Now().Add(time.Minute)))
	g.check(testenv.Echo(c))
	return c
}

// addr is the pod's address.
func (s *sandbox) addr() string { return s.result.IPs[0].Address.IP.String() }

// enough tells whether it has sent so much that what passed would be seen.
func (f *flood) enough() error {
	if f.forbidden.Load() < 1000 || f.sent.Load() < 1000 {
		return fmt.Errorf("%s: %d, %s: %d are few", f.bad, f.forbidden.Load(), f.good, f.sent.Load())
	}
	return nil
}
