package enforce

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

const (
	nodeAddr = "198.18.0.1"
	podAddr  = "198.18.0.2"
	openPort = 4000 // allowed by the rules of allowPorts(openPort)
	shutPort = 5000

	lockTimeout = 5 * time.Second
)

// ground is a node with one pod on a veth, and an enforcer that works in the node's namespace.
type ground struct {
	t        *testing.T
	node     *testenv.NetNS
	pod      *testenv.NetNS
	cfg      Config
	e        *Enforcer
	iface    state.Interface
	received map[int]*atomic.Int64
}

func newGround(t *testing.T) *ground {
	t.Helper()
	testenv.RequireRoot(t)
	g := &ground{t: t, node: testenv.New(t), pod: testenv.New(t), received: map[int]*atomic.Int64{}}
	host, peer := testenv.Veth(t, g.node, "lt0", g.pod, "eth0")
	g.node.Addr(t, "lt0", nodeAddr+"/24")
	g.pod.Addr(t, "eth0", podAddr+"/24")
	g.node.Up(t, "lo")
	g.node.Up(t, "lt0")
	g.pod.Up(t, "eth0")
	// Neighbours are known: a test that drops everything drops ARP, and failed entries are slow to heal.
	g.pod.Neigh(t, "eth0", nodeAddr, host.Attrs().HardwareAddr)
	g.node.Neigh(t, "lt0", podAddr, peer.Attrs().HardwareAddr)
	g.iface = state.Interface{Ifindex: host.Attrs().Index, Name: "lt0", Addr4: netip.MustParseAddr(podAddr)}
	g.cfg = Config{Bpffs: testenv.BPFFS(t), StateDir: testenv.StateDir(t), AttachMode: attach.ModeAuto,
		LockTimeout: lockTimeout, Sizes: bpf.Sizes{Flows4: 1024, Flows6: 1024, Frags: 64}}
	g.open()
	for _, port := range []int{openPort, shutPort} {
		g.listen(port)
	}
	return g
}

func (g *ground) open() {
	g.t.Helper()
	e, err := Open(context.Background(), g.cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	g.e = e
	g.t.Cleanup(func() { _ = e.Close() })
}

func (g *ground) listen(port int) {
	g.t.Helper()
	n := &atomic.Int64{}
	g.received[port] = n
	g.node.MustDo(g.t, func() error {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(nodeAddr), Port: port})
		if err != nil {
			return err
		}
		g.t.Cleanup(func() { _ = c.Close() })
		go func() {
			b := make([]byte, 64)
			for {
				if _, _, err := c.ReadFrom(b); err != nil {
					return
				}
				n.Add(1)
			}
		}()
		return nil
	})
}

// nextPort makes every datagram a flow of its own: one of an older flow has a grace when policy changes.
var nextPort atomic.Int64

func init() { nextPort.Store(10000) }

// send sends one datagram from a new port of the pod.
func (g *ground) send(port int) { g.sendFrom(int(nextPort.Add(1)), port) }

func (g *ground) sendFrom(local, port int) {
	g.t.Helper()
	g.pod.MustDo(g.t, func() error {
		c, err := net.DialUDP("udp4", &net.UDPAddr{Port: local}, &net.UDPAddr{IP: net.ParseIP(nodeAddr), Port: port})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	})
}

// passes tells whether a datagram of the pod arrives.
func (g *ground) passes(port int) bool {
	g.t.Helper()
	before := g.received[port].Load()
	for range 20 {
		g.send(port)
		time.Sleep(5 * time.Millisecond)
		if g.received[port].Load() > before {
			return true
		}
	}
	return false
}

// wantVerdicts asserts which of the two ports the pod reaches.
func (g *ground) wantVerdicts(what string, open, shut bool) {
	g.t.Helper()
	if got := g.passes(openPort); got != open {
		g.t.Errorf("%s: port %d reachable %v, want %v", what, openPort, got, open)
	}
	if got := g.passes(shutPort); got != shut {
		g.t.Errorf("%s: port %d reachable %v, want %v", what, shutPort, got, shut)
	}
}

// do runs f in the node's namespace, where the enforcer's devices are.
func (g *ground) do(f func() error) {
	g.t.Helper()
	if err := g.node.Do(f); err != nil {
		g.t.Fatal(err)
	}
}

var (
	idA = identity.Of("shop", map[string]string{"app": "a"})
	idB = identity.Of("shop", map[string]string{"app": "b"})
)

func attachment(in state.Interface) state.Attachment {
	return state.Attachment{ContainerID: "c1", IfName: "eth0", PodNamespace: "shop", PodName: "a", Interfaces: []state.Interface{in}}
}

// apply applies a request under the locks of the identifiers that it may touch.
func (g *ground) apply(req Request) (result Result) {
	g.t.Helper()
	g.do(func() (err error) {
		result, err = g.tryApply(req)
		return err
	})
	return result
}

func (g *ground) tryApply(req Request) (Result, error) {
	held, err := g.e.Lock(context.Background(), idA, idB)
	if err != nil {
		return Result{}, err
	}
	result, err := g.e.Apply(context.Background(), held, req)
	return result, errors.Join(err, held.Release())
}

// allowPorts isolates egress and allows UDP ports to anywhere.
func allowPorts(ports ...uint16) *policy.Rules {
	var list []policy.Ports
	for _, p := range ports {
		list = append(list, policy.Ports{Protocol: policy.UDP, First: p, Last: p})
	}
	return policy.Compile(policy.Input{
		Default: [2]policy.Verdict{policy.Allow, policy.Allow},
		Policies: []policy.Policy{{
			Ref:      policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "shop", Name: "p"},
			Isolates: [2]bool{policy.Egress: true},
			Rules:    [2][]policy.Rule{policy.Egress: {{Peer: policy.Peer{Block: netip.MustParsePrefix("0.0.0.0/0")}, Ports: list}}},
		}},
	})
}

func openRules() *policy.Rules {
	return policy.Compile(policy.Input{Default: [2]policy.Verdict{policy.Allow, policy.Allow}})
}

// wantNothingLeft asserts that no slot, record, member or lock is left.
func (g *ground) wantNothingLeft() {
	g.t.Helper()
	for slot := bpf.FirstSlot; slot < bpf.MaxSlots; slot++ {
		if s := g.e.objects.slots.At(slot); s.Flags != 0 || s.Identifier != [16]byte{} {
			g.t.Errorf("slot %d is still in use, flags %#x, of %x", slot, s.Flags, s.Identifier)
		}
	}
	for _, dir := range []string{"attachments", "identifiers", "members"} {
		left, err := os.ReadDir(g.cfg.StateDir + "/" + dir)
		if err == nil && len(left) > 0 {
			g.t.Errorf("%s: %v is left", dir, left)
		}
	}
}
