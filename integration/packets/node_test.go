package packets

import (
	"fmt"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/testenv"
)

// Addresses of the node that nobody has told Latch of.
const (
	second4 = "198.18.9.1"
	second6 = "fd00:99::1"
)

// nodePorts translate what comes to the node for a pod, and hide who sent it.
const nodePorts = `
table inet nat {
	chain prerouting {
		type nat hook prerouting priority dstnat;
		ip daddr 10.0.0.10 tcp dport 30080 dnat ip to 10.0.1.11:8080
		ip6 daddr fd00:10::10 tcp dport 30080 dnat ip6 to [fd00:10:1::11]:8080
		ip daddr 172.20.0.81 tcp dport 80 dnat ip to 10.0.1.11:8080
		ip6 daddr fd00:20::81 tcp dport 80 dnat ip6 to [fd00:10:1::11]:8080
	}
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ct status dnat masquerade
	}
}`

// ask talks to an echo server over TCP that should be reached.
func ask(ns *testenv.NetNS, local, remote string) error {
	return within(3*time.Second, ns, local, remote)
}

// tryOnce is ask for a server that should not be reached.
func tryOnce(ns *testenv.NetNS, local, remote string) error {
	return within(400*time.Millisecond, ns, local, remote)
}

func within(wait time.Duration, ns *testenv.NetNS, local, remote string) error {
	c, err := ns.DialFrom("tcp", local, remote, wait)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	return testenv.Echo(c)
}

// D2, D3, D8 with real stacks, whatever policy says: the node reaches its pods from any of its addresses,
// pods reach their node, and what the node only hands on is not the node's, whose address it may bear.
func TestNode(t *testing.T) {
	for _, c := range []struct {
		name     string
		o        options
		isolates string
	}{
		{"policy without rules", options{both: true}, "IE"},
		{"strict mode", options{strict: true}, ""},
		{"Admin policy that denies everything", options{deny: true}, "IE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGround(t, c.o)
			g.nft(g.Node, nodePorts)
			g.Node.Addr(t, "lo", second4+"/32", second6+"/128")
			a := g.pod(testenv.PodA, c.isolates)
			free := g.sandbox(g.Pod(t, testenv.PodC)) // Latch is not in force for it
			for _, f := range families {
				a.ListenTCP(t, at(f.a, 8080))
				g.Node.ListenTCP(t, at(f.node, 53))
			}
			each(t, g, func(t *testing.T, f family) {
				second := map[int]string{32: second4, 128: second6}[f.bits]
				vip := map[int]string{32: "172.20.0.81", 128: "fd00:20::81"}[f.bits]
				for _, local := range []string{f.node, second} {
					if err := ask(g.Node, at(local, 0), at(f.a, 8080)); err != nil {
						t.Errorf("probe from %s: %v", local, err)
					}
				}
				if err := ask(a.NetNS, at(f.a, 0), at(f.node, 53)); err != nil {
					t.Errorf("pod to its node: %v", err)
				}
				denied := func(what string, err error, before map[uint8]uint64) {
					t.Helper()
					if err == nil || newDrops(before, g.drops()) == "" {
						t.Errorf("%s: %v, dropped %q", what, err, newDrops(before, g.drops()))
					}
				}
				before := g.drops()
				denied("from outside", tryOnce(g.Ext, at(f.web, 0), at(f.a, 8080)), before)
				before = g.drops()
				denied("from outside by the node's port, masqueraded", tryOnce(g.Ext, at(f.web, 0), at(f.node, 30080)), before)
				before = g.drops()
				denied("from another pod by a service, masqueraded", tryOnce(free.NetNS, at(f.c, 0), at(vip, 80)), before)
				before = g.drops()
				denied("from the pod to the outside", tryOnce(a.NetNS, at(f.a, 0), at(f.web, 53)), before)
			})
			// Controls: without policy all of it is answered.
			g.o.strict, g.o.deny = false, false
			a.set("")
			each(t, g, func(t *testing.T, f family) {
				vip := map[int]string{32: "172.20.0.81", 128: "fd00:20::81"}[f.bits]
				for what, err := range map[string]error{
					"node's port": ask(g.Ext, at(f.web, 0), at(f.node, 30080)),
					"service":     ask(free.NetNS, at(f.c, 0), at(vip, 80)),
					"direct":      ask(g.Ext, at(f.web, 0), at(f.a, 8080)),
				} {
					if err != nil {
						t.Errorf("control, %s: %v", what, err)
					}
				}
			})
		})
	}
}

// The switches: what bears a node address is the node's; pods reach the node by policy only.
func TestNodeSwitches(t *testing.T) {
	g := newGround(t, options{both: true, node: func(c *enforce.NodeConfig) { c.AddressIsNode, c.JudgeToNode = true, true }})
	g.nft(g.Node, nodePorts)
	a := g.pod(testenv.PodA, "IE", "E "+v4.node+" tcp/54", "E "+v6.node+" tcp/54")
	each(t, g, func(t *testing.T, f family) {
		a.ListenTCP(t, at(f.a, 8080))
		g.Node.ListenTCP(t, at(f.node, 53))
		g.Node.ListenTCP(t, at(f.node, 54))
		if err := ask(g.Ext, at(f.web, 0), at(f.node, 30080)); err != nil {
			t.Errorf("node's port, masqueraded to the node's address: %v", err)
		}
		if err := tryOnce(g.Ext, at(f.web, 0), at(f.a, 8080)); err == nil {
			t.Error("from outside: was answered")
		}
		if err := ask(a.NetNS, at(f.a, 0), at(f.node, 54)); err != nil {
			t.Errorf("pod to its node, allowed port: %v", err)
		}
		if err := tryOnce(a.NetNS, at(f.a, 0), at(f.node, 53)); err == nil {
			t.Error("pod to its node, another port: was answered")
		}
		if err := ask(g.Node, at(f.node, 0), at(f.a, 8080)); err != nil {
			t.Errorf("probe: %v", err)
		}
	})
}

// D2: a pod reaches itself by its service, where its egress allows the service, masqueraded or not. The
// ingress side asks for nothing.
func TestHairpin(t *testing.T) {
	for _, masquerade := range []bool{false, true} {
		t.Run(fmt.Sprintf("masqueraded %v", masquerade), func(t *testing.T) {
			g := newGround(t, options{both: true, mute: true})
			post := ""
			if masquerade {
				post = "chain post { type nat hook postrouting priority srcnat; ct status dnat masquerade; }"
			}
			g.nft(g.Node, `table inet nat { chain pre { type nat hook prerouting priority dstnat;
				ip daddr 172.20.0.81 tcp dport 80 dnat ip to 10.0.1.11:8080
				ip6 daddr fd00:20::81 tcp dport 80 dnat ip6 to [fd00:10:1::11]:8080
			}
			`+post+`
			}`)
			a := g.pod(testenv.PodA, "IE", "E 172.20.0.81 tcp/80", "E fd00:20::81 tcp/80")
			b := g.pod(testenv.PodB, "")
			each(t, g, func(t *testing.T, f family) {
				vip := map[int]string{32: "172.20.0.81", 128: "fd00:20::81"}[f.bits]
				arriving := func(src string, port int) []byte {
					if masquerade {
						src = map[int]string{32: "10.0.0.10", 128: "fd00:10::10"}[f.bits]
					}
					return segment(at(src, port), at(f.a, 8080), syn, 1000, 0)
				}
				if got := g.fateAs(a.end, a.end, segment(at(f.a, 41000), at(vip, 80), syn, 1000, 0), arriving(f.a, 41000)); got != "allow" {
					t.Errorf("to itself by its service: %s", got)
				}
				if got := g.fateAs(b.end, a.end, segment(at(f.b, 41001), at(vip, 80), syn, 1000, 0), arriving(f.b, 41001)); got != "deny policy" {
					t.Errorf("another pod by the service: %s", got)
				}
				g.want("deny policy", "the pod to another service", a.end, g.ext, testenv.TCP(at(f.a, 41002), at(f.other, 80), syn))
				// With the pod's own address from elsewhere there is no hairpin.
				g.want("deny policy", "its own address from outside", g.ext, a.end, testenv.TCP(at(f.b, 41003), at(f.a, 8080), syn))
			})
		})
	}
}
