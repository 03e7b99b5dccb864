package view_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/testenv"
	"github.com/latch-cni/latch/shared/view"
)

var idNone = identity.Of("t1", map[string]string{"app": "none"})

func idOfName(namespace, name string) identity.Identifier { return identity.OfName(namespace, name) }

func TestRulesAreThoseOfTheKernel(t *testing.T) {
	g := newGround(t)
	b := g.pod(testenv.PodB)
	g.look(func(n *view.Node) error {
		rules, err := n.Rules(b)
		var got []string
		for _, r := range rules {
			got = append(got, fmt.Sprintf("%s %q %v %s by %s", r.Direction, r.Prefix, r.Ports, r.Verdict, r.Decision))
		}
		want := []string{
			`ingress "10.0.1.11/32" [UDP/4000] allow by t1/db`,
			`ingress "10.0.1.11/32" [other] deny by t1/db (isolates)`,
			`ingress "fd00:10:1::11/128" [UDP/4000] allow by t1/db`,
			`ingress "fd00:10:1::11/128" [other] deny by t1/db (isolates)`,
			`ingress "" [all] deny by t1/db (isolates)`,
			`egress "" [all] deny by t1/db (isolates)`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		return err
	})
}

// Ports of every shape are named so that they can be read back without a loss.
func TestPortsAreNamed(t *testing.T) {
	g := newGround(t)
	any4 := policy.Peer{Block: netip.MustParsePrefix("0.0.0.0/0")}
	tests := []struct {
		name  string
		rules []policy.ClusterRule
		want  string
	}{
		{"one port", []policy.ClusterRule{accept(any4, policy.Ports{Protocol: policy.TCP, First: 80, Last: 80})}, "TCP/80"},
		{"a range and a protocol", []policy.ClusterRule{accept(any4, policy.Ports{Protocol: policy.TCP, First: 8000, Last: 8999},
			policy.Ports{Protocol: policy.UDP, First: 0, Last: 65535})}, "TCP/8000-8999 UDP"},
		{"all but one port", []policy.ClusterRule{
			{Rule: policy.Rule{Peer: any4, Ports: []policy.Ports{{Protocol: policy.TCP, First: 25, Last: 25}}}, Action: policy.ActionDeny},
			{Rule: policy.Rule{Peer: any4, AllPorts: true}, Action: policy.ActionAccept},
		}, "other"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g.apply(idB, policy.Input{Cluster: []policy.ClusterPolicy{{
				Ref: policy.PolicyRef{Kind: "ClusterNetworkPolicy", Name: "all"}, Tier: policy.TierAdmin, Priority: 7,
				Rules: [2][]policy.ClusterRule{policy.Ingress: test.rules},
			}}}, g.b)
			b := g.pod(testenv.PodB)
			g.look(func(n *view.Node) error {
				rules, err := n.Rules(b)
				i := slices.IndexFunc(rules, func(r view.Rule) bool { return r.Verdict == "allow" })
				if err != nil || i < 0 {
					return fmt.Errorf("no rule allows: %v, %v", rules, err)
				}
				r := rules[i]
				if got := strings.Join(r.Ports, " "); got != test.want || r.Decision.String() != "ClusterNetworkPolicy all (Admin 7)" {
					t.Errorf("%s by %s, want %s", got, r.Decision, test.want)
				}
				return nil
			})
		})
	}
}

func accept(p policy.Peer, ports ...policy.Ports) policy.ClusterRule {
	return policy.ClusterRule{Rule: policy.Rule{Peer: p, Ports: ports}, Action: policy.ActionAccept}
}

func TestExplain(t *testing.T) {
	g := newGround(t)
	for _, at := range []string{testenv.NodeAddr4 + ":22", ":24", "127.0.0.1:25"} {
		g.onNode(func() error { return closing(t)(net.Listen("tcp", at)) })
	}
	g.onNode(func() error { return closing(t)(net.ListenPacket("udp", testenv.NodeAddr4+":53")) })
	a, b := testenv.PodA, testenv.PodB
	tests := []struct {
		name, from, to, port string
		family               int
		verdict              string
		egress, ingress      string // reason and who decided
	}{
		{"allowed by the policy", "t1/" + a.Name, "t1/" + b.Name, "4000/UDP", 0, "allow", "policy default of the mode", "policy t1/db"},
		{"the same over IPv6", "t1/" + a.Name, "t1/" + b.Name, "4000/udp", 6, "allow", "policy default of the mode", "policy t1/db"},
		{"another port", "t1/" + a.Name, "t1/" + b.Name, "5000/UDP", 0, "deny", "policy default of the mode", "policy t1/db (isolates)"},
		{"another protocol", a.Addr4, b.Addr4, "4000", 0, "deny", "policy default of the mode", "policy t1/db (isolates)"},
		{"from outside", "198.51.100.7", "t1/" + b.Name, "4000/UDP", 0, "deny", "remote", "policy t1/db (isolates)"},
		{"out of an isolated pod", "t1/" + b.Name, "198.51.100.7", "53/UDP", 0, "deny", "policy t1/db (isolates)", "remote"},
		{"from the node", testenv.NodeAddr4, "t1/" + b.Name, "22/TCP", 0, "allow", "remote", "node"},
		{"from an address of the node that nobody named", testenv.NodeAddr6, "t1/" + b.Name, "22/TCP", 0, "allow", "remote", "node"},
		{"to an address of the node that nobody named", "t1/" + b.Name, testenv.NodeAddr6, "22/TCP", 0, "deny", "policy t1/db (isolates)", "remote"},
		{"out to such an address, as IPVS has of services", "t1/" + a.Name, testenv.NodeAddr6, "22/TCP", 0, "allow", "policy default of the mode", "remote"},
		{"to a socket of the node", "t1/" + b.Name, testenv.NodeAddr4, "22/TCP", 0, "allow", "node", "remote"},
		{"to a socket of the node for both families", "t1/" + b.Name, testenv.NodeAddr4, "24/TCP", 0, "allow", "node", "remote"},
		{"to a socket of the node at another address", "t1/" + b.Name, testenv.NodeAddr4, "25/TCP", 0, "deny", "policy t1/db (isolates)", "remote"},
		{"to a port of the node without a socket", "t1/" + b.Name, testenv.NodeAddr4, "23/TCP", 0, "deny", "policy t1/db (isolates)", "remote"},
		{"to a socket of another protocol", "t1/" + b.Name, testenv.NodeAddr4, "22/UDP", 0, "deny", "policy t1/db (isolates)", "remote"},
		{"datagrams to the node", "t1/" + b.Name, testenv.NodeAddr4, "53/UDP", 0, "allow", "node", "remote"},
		{"SCTP to the node", "t1/" + b.Name, testenv.NodeAddr4, "22/SCTP", 0, "allow", "node", "remote"},
		{"ping to the node", "t1/" + b.Name, testenv.NodeAddr4, "ICMP", 0, "allow", "node", "remote"},
		{"a tunnel to the node", "t1/" + b.Name, testenv.NodeAddr4, "protocol/47", 0, "deny", "policy t1/db (isolates)", "remote"},
		{"to itself", "t1/" + b.Name, "t1/" + b.Name, "22/TCP", 0, "allow", "self", "self"},
		{"ping", "t1/" + a.Name, "t1/" + b.Name, "ICMP", 0, "deny", "policy default of the mode", "policy t1/db (isolates)"},
		{"neither is here", "198.51.100.7", "203.0.113.9", "80", 0, "unknown", "remote", "remote"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			port, err := view.ParsePort(test.port)
			if err != nil {
				t.Fatal(err)
			}
			g.look(func(n *view.Node) error {
				x, err := n.Explain(view.Query{From: test.from, To: test.to, Port: port, Family: test.family})
				if err != nil {
					return err
				}
				got := []string{x.Verdict, because(x.Egress), because(x.Ingress)}
				if diff := cmp.Diff([]string{test.verdict, test.egress, test.ingress}, got); diff != "" {
					t.Error(diff)
				}
				if want := strings.Contains(test.from+test.to, "198.51.100.") || test.to == testenv.NodeAddr6; x.Elsewhere != want {
					t.Errorf("judged elsewhere, too: %v, want %v", x.Elsewhere, want)
				}
				return nil
			})
		})
	}
}

// closing closes what a test listens on.
func closing(t *testing.T) func(io.Closer, error) error {
	return func(c io.Closer, err error) error {
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return err
	}
}

// What explain says of the ports of the node is what the kernel does: a port that policy denies is silent,
// and does not even refuse.
func TestExplainKnowsTheSocketsOfTheNode(t *testing.T) {
	g := newGround(t)
	g.onNode(func() error { return closing(t)(net.Listen("tcp", ":22")) })
	for port, want := range map[int]string{22: "allow", 23: "deny"} {
		g.look(func(n *view.Node) error {
			x, err := n.Explain(view.Query{From: "t1/" + testenv.PodB.Name, To: testenv.NodeAddr4, Port: view.Port{Protocol: policy.TCP, Number: uint16(port)}})
			if err == nil && (x.Verdict != want || x.Egress.Note == "") {
				t.Errorf("port %d: explain says %s (%s), want %s and on what it depends", port, x.Verdict, x.Egress.Note, want)
			}
			return err
		})
		g.b.MustDo(t, func() error {
			c, err := net.DialTimeout("tcp4", fmt.Sprintf("%s:%d", testenv.NodeAddr4, port), time.Second)
			if err == nil {
				_ = c.Close()
			}
			if refused := errors.Is(err, syscall.ECONNREFUSED); refused || (err == nil) != (want == "allow") {
				t.Errorf("port %d: the kernel let it pass: %v, want %s", port, err, want)
			}
			return nil
		})
	}
}

func because(j view.Judged) string {
	if j.Reason == view.ReasonPolicy {
		return j.Reason + " " + j.Decision.String()
	}
	return j.Reason
}

func TestExplainRefuses(t *testing.T) {
	g := newGround(t)
	port, _ := view.ParsePort("80")
	for name, q := range map[string]view.Query{
		"a name that is none": {From: "web", To: "t1/" + testenv.PodB.Name, Port: port},
		"an unknown pod":      {From: "t1/nobody", To: "t1/" + testenv.PodB.Name, Port: port},
		"two families":        {From: "fd00::1", To: testenv.PodB.Addr4, Port: port},
	} {
		g.look(func(n *view.Node) error {
			if x, err := n.Explain(q); err == nil {
				t.Errorf("%s: %+v", name, x)
			}
			return nil
		})
	}
}
