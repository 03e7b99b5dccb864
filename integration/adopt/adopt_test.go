package adopt

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// tracking makes the kernel track connections, as any node with kube-proxy does, and a service. The rule on
// states is for IPv6: translating IPv4 has the kernel track IPv4 alone.
const tracking = `
table inet services {
	chain forward {
		type filter hook forward priority filter;
		ct state established,related accept
	}
	chain prerouting {
		type nat hook prerouting priority dstnat;
		ip daddr 172.20.0.80 tcp dport 80 dnat ip to 198.51.100.7:8080
	}
}`

var lost = testenv.PodSpec{Namespace: "t1", Name: "lost", Labels: map[string]string{"app": "lost"}, Addr4: "10.0.1.99"}

// policies let A reach B's port 8080, and B ask a name server and use a service.
func (g *ground) policies() {
	g.t.Helper()
	var ingress []object
	for _, protocol := range []string{"TCP", "UDP"} {
		ingress = append(ingress, rule("10.0.1.11/32", protocol, 8080), rule("fd00:10:1::11/128", protocol, 8080))
	}
	g.write("policy", endpoints("b", "b", []string{"Ingress", "Egress"}, ingress,
		[]object{rule("198.51.100.7/32", "UDP", 53), rule("2001:db8:7::7/128", "UDP", 53), rule("172.20.0.80/32", "TCP", 80)}))
}

// query is a datagram whose answer comes when answer is called, late.
type query struct {
	asked, served net.PacketConn
	from          net.Addr
}

func newQuery(t *testing.T, client *testenv.NetNS, local string, server *testenv.NetNS, remote string) *query {
	t.Helper()
	q := &query{asked: client.PacketConn(t, local), served: server.PacketConn(t, remote)}
	if _, err := q.asked.WriteTo([]byte("?"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(remote))); err != nil {
		t.Fatal(err)
	}
	_ = q.served.SetReadDeadline(time.Now().Add(2 * time.Second))
	var err error
	if _, q.from, err = q.served.ReadFrom(make([]byte, 8)); err != nil {
		t.Fatalf("query %s > %s did not arrive: %v", local, remote, err)
	}
	return q
}

func (q *query) answer() error {
	if _, err := q.served.WriteTo([]byte("!"), q.from); err != nil {
		return err
	}
	_ = q.asked.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, _, err := q.asked.ReadFrom(make([]byte, 8))
	return err
}

func TestRunningPodsAreAdopted(t *testing.T) {
	g := newGround(t)
	g.nft(tracking)
	a, b, c := g.pod(testenv.PodA), g.pod(testenv.PodB), g.pod(testenv.PodC)
	g.publish(lost)
	g.policies()

	for _, addr := range []string{"10.0.1.12:8080", "[fd00:10:1::12]:8080"} {
		b.ListenTCP(t, addr)
		b.ListenUDP(t, addr)
	}
	for _, addr := range []string{"198.51.100.7:8080", "203.0.113.9:443"} {
		g.Ext.ListenTCP(t, addr)
	}
	serveSlowly(t, g.Ext, "198.51.100.7:53", 100*time.Millisecond)
	allowed := []*stream{
		newStream(t, a.NetNS, "10.0.1.11:41000", "10.0.1.12:8080"),
		newStream(t, a.NetNS, "[fd00:10:1::11]:41000", "[fd00:10:1::12]:8080"),
		newStream(t, b.NetNS, "10.0.1.12:41001", "172.20.0.80:80"),
	}
	denied := []*stream{
		newStream(t, c.NetNS, "10.0.1.13:41002", "10.0.1.12:8080"),
		newStream(t, c.NetNS, "[fd00:10:1::13]:41002", "[fd00:10:1::12]:8080"),
		newStream(t, b.NetNS, "10.0.1.12:41003", "203.0.113.9:443"),
	}
	late := newQuery(t, b.NetNS, "[fd00:10:1::12]:41004", g.Ext, "[2001:db8:7::7]:53")
	exchanges := []*exchange{
		exchangeDatagrams(t, a.NetNS, "10.0.1.11:41005", "10.0.1.12:8080"),
		exchangeDatagrams(t, a.NetNS, "[fd00:10:1::11]:41005", "[fd00:10:1::12]:8080"),
		exchangeDatagrams(t, b.NetNS, "10.0.1.12:41006", "198.51.100.7:53"),
		exchangeDatagrams(t, b.NetNS, "10.0.1.12:0", "198.51.100.7:53"),
	}

	g.start()
	for _, s := range []testenv.PodSpec{testenv.PodA, testenv.PodB, testenv.PodC} {
		if err := g.enforced(s); err != nil {
			t.Error(err) // ready means that they are
		}
	}
	if err := late.answer(); err != nil {
		t.Errorf("late answer to %s: %v", late.from, err)
	}
	if _, err := c.DialFrom("tcp", "10.0.1.13:0", "10.0.1.12:8080", 300*time.Millisecond); err == nil {
		t.Error("a new forbidden connection was let through")
	}
	for _, s := range denied {
		testenv.Eventually(t, 10*time.Second, func() error {
			if silent := s.silent(); silent < 500*time.Millisecond {
				return fmt.Errorf("%s: not cut, silent for %v", s.name, silent)
			}
			return nil
		})
	}
	if c, err := a.DialFrom("tcp", "10.0.1.11:0", "10.0.1.12:8080", 5*time.Second); err != nil {
		t.Errorf("a new connection that is allowed: %v", err)
	} else {
		_ = c.Close()
	}
	for _, s := range allowed {
		s.alive(t)
	}
	for _, e := range exchanges {
		e.lossless(t)
	}
	g.notAdopted(lost, "10.0.1.99 alone")
}

// notAdopted requires that the operator is told, by status and exit code, that a pod is not adopted, and why.
func (g *ground) notAdopted(s testenv.PodSpec, why string) {
	g.t.Helper()
	testenv.Eventually(g.t, 10*time.Second, func() error {
		out, err := g.node.Latchctl(g.t.Context(), "status")
		if err == nil || !strings.Contains(err.Error(), "exit status 3") {
			return fmt.Errorf("latchctl status: %w, want exit status 3", err)
		}
		for _, want := range []string{s.Namespace + "/" + s.Name, "not-adopted", why} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("latchctl status does not say %q:\n%s", want, out)
			}
		}
		out, err = g.node.Latchctl(g.t.Context(), "check")
		if err == nil || !strings.Contains(out, why) {
			return fmt.Errorf("latchctl check: %w: %s", err, out)
		}
		return nil
	})
}

// A pod that gets a route later is adopted by an audit, and one whose interface goes is forgotten.
func TestAuditAdoptsAndForgets(t *testing.T) {
	g := newGround(t, "--audit-period", "500ms")
	g.publish(testenv.PodB)
	g.policies()
	g.start()
	g.notAdopted(testenv.PodB, "10.0.1.12 alone")
	b := g.Pod(t, testenv.PodB)
	testenv.Eventually(t, 5*time.Second, func() error { return g.enforced(testenv.PodB) })
	g.Node.DelLink(t, b.HostName)
	testenv.Eventually(t, 10*time.Second, func() error {
		if left := g.records(testenv.PodB); len(left) > 0 {
			return fmt.Errorf("left: %+v", left)
		}
		return nil
	})
}

// An ADD of the runtime for a pod that is adopted takes its interface over, and its flows.
func TestAddTakesOverAdopted(t *testing.T) {
	g := newGround(t, "--audit-period", "500ms")
	g.nft(tracking)
	a, b := g.pod(testenv.PodA), g.pod(testenv.PodB)
	g.policies()
	b.ListenTCP(t, "10.0.1.12:8080")
	s := newStream(t, a.NetNS, "10.0.1.11:41000", "10.0.1.12:8080")
	q := newQuery(t, b.NetNS, "10.0.1.12:41004", g.Ext, "198.51.100.7:53")
	g.start()
	before := g.records(testenv.PodB)
	if len(before) != 1 || !before[0].Adopted || before[0].ContainerID != "adopted-"+uid(testenv.PodB) {
		t.Fatalf("records %+v", before)
	}
	if err := g.add(b, "c1"); err != nil {
		t.Fatal(err)
	}
	after := g.records(testenv.PodB)
	if len(after) != 1 || after[0].Adopted || after[0].Interfaces[0].PodID != before[0].Interfaces[0].PodID {
		t.Errorf("records after ADD: %+v", after)
	}
	if err := errors.Join(q.answer(), g.enforced(testenv.PodB)); err != nil {
		t.Error(err)
	}
	s.alive(t)
	time.Sleep(time.Second) // two audits
	s.alive(t)
	if err := g.enforced(testenv.PodB); err != nil {
		t.Error(err)
	}
	if n := len(g.records(testenv.PodB)); n != 1 {
		t.Errorf("%d records after the audits", n)
	}
}

// Adopted pods are held to their own addresses where the node's pods are.
func TestAdoptedPodsMustNotSpoof(t *testing.T) {
	g := newGround(t, "--anti-spoof")
	a := g.pod(testenv.PodA)
	a.Addr(t, a.IfName, "10.0.1.111/32")
	g.Node.Route(t, "10.0.1.111/32", "", a.HostName) // for the node's own filter of sources
	server := g.Ext.PacketConn(t, "198.51.100.7:53")
	own, spoofed := a.PacketConn(t, "10.0.1.11:41000"), a.PacketConn(t, "10.0.1.111:41000")
	send := func(c net.PacketConn) {
		t.Helper()
		if _, err := c.WriteTo([]byte("?"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort("198.51.100.7:53"))); err != nil {
			t.Fatal(err)
		}
	}
	next := func() string {
		t.Helper()
		_ = server.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, from, err := server.ReadFrom(make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		return from.String()
	}
	send(spoofed)
	if from := next(); from != "10.0.1.111:41000" {
		t.Fatalf("before: a datagram from %s", from)
	}
	g.start()
	send(spoofed)
	send(own)
	if from := next(); from != "10.0.1.11:41000" {
		t.Errorf("adopted: a datagram from %s", from)
	}
}
