package regress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/testenv"
)

// The timeouts that latchd is told are those of the data path, each at its place, and have their effect.
func TestTimeoutFlags(t *testing.T) {
	want := bpf.Timeouts{TCPSyn: 11 * time.Second, TCPEstablished: 12 * time.Second, TCPClosing: 13 * time.Second, UDP: 2 * time.Second,
		UDPAnswered: 15 * time.Second, Other: 16 * time.Second, Fragment: 17 * time.Second, Grace: 6 * time.Second}
	var flags []string
	for name, d := range map[string]time.Duration{"timeout-tcp-syn": want.TCPSyn, "timeout-tcp-established": want.TCPEstablished,
		"timeout-tcp-closing": want.TCPClosing, "timeout-udp": want.UDP, "timeout-udp-answered": want.UDPAnswered,
		"timeout-other": want.Other, "timeout-fragment": want.Fragment, "grace": want.Grace} {
		flags = append(flags, "--"+name, d.String())
	}
	g := newGround(t, options{latchd: flags})
	if got := g.timeouts(); got != want.Stamps() {
		t.Errorf("timeouts of the data path are %v, want %v", got, want.Stamps())
	}
	g.apply("t1/dns app=a IE\nE web udp/53")
	a := g.start("A", testenv.PodA)
	server := newPeer(t, g.Ext, testenv.ExtWeb4+":53")

	// An unanswered flow is known for two seconds, by default for thirty.
	client := newPeer(t, a.NetNS, testenv.PodA.Addr4+":41000")
	testenv.Eventually(t, 20*time.Second, func() error {
		sent := time.Now()
		client.send(server)
		if !server.gets(arrival) {
			return errors.New("a query does not arrive")
		}
		server.send(client)
		if took := time.Since(sent); !client.gets(arrival) {
			return fmt.Errorf("an answer after %v does not arrive", took)
		}
		return nil
	})
	late := newPeer(t, a.NetNS, testenv.PodA.Addr4+":41001")
	late.send(server)
	time.Sleep(want.UDP + 1500*time.Millisecond)
	before := a.dropsOf(bpf.Ingress)
	server.send(late)
	testenv.Eventually(t, 5*time.Second, func() error {
		if a.dropsOf(bpf.Ingress) == before {
			return errors.New("an answer after two seconds was not dropped")
		}
		return nil
	})

	// A flow that policy denies lives on for six seconds, by default for one.
	client.send(server)
	changed := time.Now()
	g.apply("t1/dns app=a IE\nE other udp/53")
	var last time.Time
	for quiet := 0; quiet < 20 && time.Since(changed) < 40*time.Second; quiet++ {
		client.send(server)
		if server.gets(100 * time.Millisecond) {
			last, quiet = time.Now(), 0
		}
	}
	if lived := last.Sub(changed); lived < want.Grace/2 || lived > 39*time.Second {
		t.Errorf("a flow that is denied lived for %v, the grace is %v", lived, want.Grace)
	}
}

func (g *ground) timeouts() [8]uint32 {
	g.t.Helper()
	m, err := pins.LoadMap(pins.New(g.node.Bpffs).Map("node"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		g.t.Fatal(err)
	}
	defer m.Close()
	var n bpf.Node
	if err := m.Lookup(uint32(0), &n); err != nil {
		g.t.Fatal(err)
	}
	return n.Timeouts
}

// peer is a UDP socket and how many datagrams it has got.
type peer struct {
	t    *testing.T
	conn net.PacketConn
	addr net.Addr
	got  atomic.Int64
	seen int64
}

func newPeer(t *testing.T, ns *testenv.NetNS, addr string) *peer {
	t.Helper()
	p := &peer{t: t, conn: ns.PacketConn(t, addr)}
	p.addr = p.conn.LocalAddr()
	go func() {
		for b := make([]byte, 64); ; {
			if _, _, err := p.conn.ReadFrom(b); err != nil {
				return
			}
			p.got.Add(1)
		}
	}()
	return p
}

func (p *peer) send(to *peer) {
	p.t.Helper()
	if _, err := p.conn.WriteTo([]byte("x"), to.addr); err != nil {
		p.t.Fatal(err)
	}
}

// gets tells whether a datagram comes within a time.
func (p *peer) gets(patience time.Duration) bool {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if got := p.got.Load(); got > p.seen {
			p.seen = got
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// A pod of a node with --anti-spoof sends from its own addresses only, unless its network's configuration
// says otherwise; latchctl tells, and the audit brings it back.
func TestAntiSpoof(t *testing.T) {
	g := newGround(t, options{latchd: []string{"--anti-spoof", "--audit-period", "500ms"}})
	guarded, free := g.pod("A", testenv.PodA), g.pod("C", testenv.PodC)
	guarded.publish(nil)
	free.publish(nil)
	guarded.add()
	if err := free.tryAdd(map[string]any{"antiSpoof": false}); err != nil {
		t.Fatal(err)
	}
	server := newPeer(t, g.Ext, testenv.ExtWeb4+":53")
	for _, c := range []struct {
		pod    *pod
		own    string
		second string
		passes bool
	}{{guarded, testenv.PodA.Addr4, "10.0.1.111", false}, {free, testenv.PodC.Addr4, "10.0.1.113", true}} {
		c.pod.Addr(t, c.pod.IfName, c.second+"/32")
		g.Node.Route(t, c.second+"/32", "", c.pod.HostName) // for the node's own filter of sources
		before := g.spoofs()
		newPeer(t, c.pod.NetNS, c.own+":41000").send(server)
		if !server.gets(arrival) {
			t.Errorf("%s: what it sends from its own address does not arrive", c.pod.Spec.Name)
		}
		newPeer(t, c.pod.NetNS, c.second+":41000").send(server)
		patience := map[bool]time.Duration{true: arrival, false: 200 * time.Millisecond}[c.passes]
		if got, dropped := server.gets(patience), g.spoofs() != before; got != c.passes || dropped == c.passes {
			t.Errorf("%s: from another address: arrives %v, dropped %v", c.pod.Spec.Name, got, dropped)
		}
		name := c.pod.Spec.Namespace + "/" + c.pod.Spec.Name
		for _, args := range [][]string{{"status", name}, {"rules", name}, {"explain", "--from", name, "--to", testenv.ExtWeb4, "--port", "53/UDP"}} {
			out, err := g.node.Latchctl(context.Background(), args...)
			if told := strings.Contains(out, "antiSpoof"); err != nil || told == c.passes {
				t.Errorf("latchctl %s says antiSpoof: %v, %v\n%s", args, told, err, out)
			}
		}
	}

	if err := g.setPodFlags(guarded.HostIfindex, 0); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 20*time.Second, func() error {
		before := g.spoofs()
		newPeer(t, guarded.NetNS, "10.0.1.111:0").send(server)
		if server.gets(100*time.Millisecond) || g.spoofs() == before {
			return errors.New("the audit has not brought antiSpoof back")
		}
		return nil
	})
	g.healthy()
}

func (g *ground) spoofs() uint64 {
	g.t.Helper()
	return g.counted(func(k bpf.CounterKey) bool { return k.Reason == uint8(bpf.ReasonSpoof) })
}

// setPodFlags changes a binding behind Latch's back.
func (g *ground) setPodFlags(ifindex int, flags uint32) error {
	m, err := pins.LoadMap(pins.New(g.node.Bpffs).Map("pod_state"), nil)
	if err != nil {
		return err
	}
	defer m.Close()
	var p bpf.PodState
	index := uint32(ifindex & 0xffff)
	if err := m.Lookup(index, &p); err != nil {
		return fmt.Errorf("read pod_state: %w", err)
	}
	p.Flags = flags
	return m.Put(index, &p)
}
