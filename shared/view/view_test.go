package view_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
	"github.com/latch-cni/latch/shared/view"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var ctx = context.Background()

const (
	openPort = 4000
	shutPort = 5000
)

var (
	dbPolicy = policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "t1", Name: "db"}
	idA      = identity.Of("t1", testenv.PodA.Labels)
	idB      = identity.Of("t1", testenv.PodB.Labels)
)

// ground is a node with pods A, which no policy selects, and B, which takes UDP 4000 from A and sends
// nothing.
type ground struct {
	*testenv.GroundT0
	t    *testing.T
	a, b *testenv.Pod
	cfg  enforce.Config
	e    *enforce.Enforcer
}

func newGround(t *testing.T) *ground {
	t.Helper()
	testenv.RequireRoot(t)
	g := &ground{GroundT0: testenv.Ground(t), t: t}
	g.a, g.b = g.Pod(t, testenv.PodA), g.Pod(t, testenv.PodB)
	g.cfg = enforce.Config{Bpffs: testenv.BPFFS(t), StateDir: testenv.StateDir(t), AttachMode: attach.ModeAuto,
		LockTimeout: 5 * time.Second, Sizes: bpf.Sizes{Flows4: 1024, Flows6: 1024, Frags: 64}}
	var err error
	if g.e, err = enforce.Open(ctx, g.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.e.Close() })
	g.onNode(func() error {
		return g.e.SetNode(ctx, enforce.NodeConfig{Addrs: []netip.Addr{netip.MustParseAddr(testenv.NodeAddr4)}, Timeouts: bpf.DefaultTimeouts()})
	})
	g.apply(idA, policy.Input{Default: [2]policy.Verdict{policy.Allow, policy.Allow}}, g.a)
	g.apply(idB, isolated(openPort), g.b)
	return g
}

// isolated allows one UDP port to pod A's addresses, and nothing else in either direction.
func isolated(port uint16) policy.Input {
	var rules []policy.Rule
	for _, a := range []string{testenv.PodA.Addr4, testenv.PodA.Addr6} {
		addr := netip.MustParseAddr(a)
		rules = append(rules, policy.Rule{Peer: policy.Peer{Block: netip.PrefixFrom(addr, addr.BitLen())},
			Ports: []policy.Ports{{Protocol: policy.UDP, First: port, Last: port}}})
	}
	return policy.Input{
		Default: [2]policy.Verdict{policy.Allow, policy.Allow},
		Policies: []policy.Policy{{Ref: dbPolicy, Isolates: [2]bool{true, true},
			Rules: [2][]policy.Rule{policy.Ingress: rules}}},
	}
}

func (g *ground) onNode(f func() error) {
	g.t.Helper()
	if err := g.Node.Do(f); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) apply(id identity.Identifier, in policy.Input, p *testenv.Pod) {
	g.t.Helper()
	g.onNode(func() error {
		held, err := g.e.Lock(ctx, id)
		if err != nil {
			return err
		}
		var refs []policy.PolicyRef
		for _, pol := range in.Policies {
			refs = append(refs, pol.Ref)
		}
		_, err = g.e.Apply(ctx, held, enforce.Request{
			Identifier: id, Namespace: p.Spec.Namespace, Labels: p.Spec.Labels, Create: policy.Compile(in), Policies: refs,
			Bind: []state.Attachment{{ContainerID: "c-" + p.Spec.Name, IfName: "eth0", PodNamespace: p.Spec.Namespace, PodName: p.Spec.Name,
				Interfaces: []state.Interface{{Ifindex: p.HostIfindex, Name: p.HostName, Addr4: p.Addr4, Addr6: p.Addr6}}}},
		})
		return errors.Join(err, held.Release())
	})
}

// look opens the node for reading, in its namespace, and calls fn.
func (g *ground) look(fn func(*view.Node) error) {
	g.t.Helper()
	g.onNode(func() error {
		n, err := view.Open(g.cfg.Bpffs, g.cfg.StateDir)
		if err != nil {
			return err
		}
		return errors.Join(fn(n), n.Close())
	})
}

// pod returns one pod as the view shows it.
func (g *ground) pod(spec testenv.PodSpec) (found view.Pod) {
	g.t.Helper()
	g.look(func(n *view.Node) error {
		pods, err := n.Pod(spec.Namespace, spec.Name)
		if err == nil {
			found = pods[0]
		}
		return err
	})
	return found
}

// send sends a datagram from A to a port of B.
func (g *ground) send(port int) {
	g.t.Helper()
	g.a.MustDo(g.t, func() error {
		c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: g.b.Addr4.AsSlice(), Port: port})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	})
}
