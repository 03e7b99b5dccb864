package cluster

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/ready"
	"github.com/latch-cni/latch/shared/state"
)

// inForce bounds the time from a change in the API until its verdicts.
const inForce = 2 * time.Second

var nodeAddrs = []netip.Addr{netip.MustParseAddr("198.18.9.2"), netip.MustParseAddr("fd00:18:9::2")}

// node is a node of the cluster, with latchd under its ServiceAccount.
type node struct {
	*harness.Node
	t    *testing.T
	cp   *controlPlane
	gate *gate
	bin  *harness.Binaries
	ns   string // namespace of the test
	next int
	// apply writes a policy, or its endpoints object.
	apply func(object) error
}

type nodeOptions struct {
	strict bool
	args   []string
	idle   bool // do not start latchd
}

// newNode makes a node and its Node object, and a namespace.
func newNode(t *testing.T, cp *controlPlane, o nodeOptions) *node {
	t.Helper()
	name := strings.ToLower(filepath.Base(t.Name()))
	b := ready.Build(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cp.writeKubeconfig(kubeconfig, gateAddr, cp.serviceAccountToken(t)); err != nil {
		t.Fatal(err)
	}
	mode := "standard"
	if o.strict {
		mode = "strict"
	}
	n := &node{t: t, cp: cp, bin: b, ns: name, apply: cp.apply}
	var err error
	n.Node, err = harness.NewNode(harness.Config{
		Name: "n-" + name, Addrs: nodeAddrs, Binaries: b, Kubeconfig: kubeconfig, EnforcingMode: mode,
		LatchdArgs: append([]string{"--log-level", "debug"}, o.args...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	n.gate = openGate(t, n.NS, cp, gateAddr)
	n.must(cp.apply(object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": n.ns}}))
	n.register()
	if !o.idle {
		n.start()
	}
	return n
}

// register makes the Node object, as kubelet does.
func (n *node) register(addrs ...netip.Addr) {
	n.t.Helper()
	n.must(n.cp.apply(object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": n.Name()}}))
	if addrs == nil {
		addrs = nodeAddrs
	}
	list := []object{{"type": "Hostname", "address": n.Name()}}
	for _, a := range addrs {
		list = append(list, object{"type": "InternalIP", "address": a.String()})
	}
	n.must(n.cp.merge("/api/v1/nodes/"+n.Name()+"/status", object{"status": object{"addresses": list}}))
}

// start starts latchd and waits until it is ready.
func (n *node) start() {
	n.t.Helper()
	n.must(n.StartLatchd())
	n.must(n.WaitReady(context.Background(), 20*time.Second))
}

func (n *node) close() {
	if n.t.Failed() {
		out, err := n.Latchctl(context.Background(), "status")
		n.t.Logf("latchctl status: %v\n%s", err, out)
		if n.Latchd != nil {
			n.t.Logf("latchd: %v\n%s", n.Latchd.Running(), n.Latchd.LogTail(40))
		}
	}
	err := n.Stop(context.Background())
	for _, path := range []string{"/api/v1/nodes/" + n.Name(), "/api/v1/namespaces/" + n.ns} {
		err = errors.Join(err, n.cp.remove(path))
	}
	if err != nil {
		n.t.Error(err)
	}
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// eventually polls until check returns nil, at most so long.
func (n *node) eventually(patience time.Duration, check func() error) {
	n.t.Helper()
	n.must(harness.Eventually(context.Background(), patience, check))
}

func (n *node) store() state.Store { return state.New(n.StateDir) }

// status is what latchd says about itself.
func (n *node) status() state.Status {
	n.t.Helper()
	st, err := n.store().ReadStatus()
	n.must(err)
	return st
}

// serviceAccountToken is a token of latchd's ServiceAccount.
func (cp *controlPlane) serviceAccountToken(t *testing.T) string {
	t.Helper()
	var out struct {
		Status struct{ Token string }
	}
	err := cp.create("/api/v1/namespaces/kube-system/serviceaccounts/latchd/token",
		object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{"expirationSeconds": 3600}}, &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.Status.Token
}
