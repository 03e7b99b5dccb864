package packets

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/testenv"
)

// untracked keeps the node's own connection tracking switched on, and all packets out of it.
const untracked = `
table inet r10 {
	chain raw { type filter hook prerouting priority raw; notrack; }
	chain seen { type filter hook forward priority filter; ct state established counter; }
}`

// R10: the life of connections by Latch's own table, with short timers. All flows live at the same time,
// so that the test lasts as long as the longest. Port is where a flow of the pod begins.
func TestR10Life(t *testing.T) {
	g := newGround(t, options{mute: true, node: func(c *enforce.NodeConfig) {
		c.Timeouts.TCPEstablished, c.Timeouts.TCPSyn, c.Timeouts.TCPClosing = 4*time.Second, 1500*time.Millisecond, 1500*time.Millisecond
		c.Timeouts.UDP, c.Timeouts.UDPAnswered = 1500*time.Millisecond, 3*time.Second
	}})
	g.nft(g.Node, untracked)
	a := g.pod(testenv.PodA, "IE", "E "+v4.web+" tcp/443", "E "+v6.web+" tcp/443", "E "+v4.d+" udp/53", "E "+v6.d+" udp/53")
	d := g.pod(testenv.PodD, "")
	out := func(want, what string, f family, port int, flags testenv.TCPFlags) {
		t.Helper()
		g.want(want, f.name+" "+what, a.end, g.ext, testenv.TCP(at(f.a, port), at(f.web, 443), flags))
	}
	in := func(want, what string, f family, port int, flags testenv.TCPFlags) {
		t.Helper()
		g.want(want, f.name+" "+what, g.ext, a.end, testenv.TCP(at(f.web, 443), at(f.a, port), flags))
	}
	begin := time.Now()
	step := func(at time.Duration, run func(f family)) {
		t.Helper()
		time.Sleep(time.Until(begin.Add(at)))
		for _, f := range families {
			run(f)
		}
	}
	query := func(f family, port int) []byte { return testenv.UDP(at(f.a, port), at(f.d, 53), 1) }
	answer := func(f family, port int) []byte { return testenv.UDP(at(f.d, 53), at(f.a, port), 2) }

	step(0, func(f family) {
		for _, port := range []int{41000, 41001, 41002, 41003, 41009} { // a, b, c, d, half-close
			g.established(a.end, g.ext, at(f.a, port), at(f.web, 443))
		}
		out("allow", "d: FIN", f, 41003, fin|ack)
		in("allow", "d: FIN", f, 41003, fin|ack)
		out("allow", "d: last ACK", f, 41003, ack)
		out("allow", "half-close: FIN", f, 41009, fin|ack)
		out("allow", "f: SYN", f, 41004, syn)
		g.want("allow", "g: query", a.end, d.end, query(f, 42000))
		g.want("allow", "h: query", a.end, d.end, query(f, 42001))
	})
	step(300*time.Millisecond, func(f family) { out("allow", "f: SYN again", f, 41004, syn) })
	step(900*time.Millisecond, func(f family) {
		in("allow", "d: repeated FIN", f, 41003, fin|ack)
		out("allow", "d: repeated last ACK", f, 41003, ack)
		out("allow", "f: SYN again", f, 41004, syn)
	})
	step(1200*time.Millisecond, func(f family) {
		in("allow", "f: SYN ACK", f, 41004, syn|ack)
		g.want("allow", "g: late answer", d.end, a.end, answer(f, 42000))
		g.want("allow", "g: the answer again", d.end, a.end, answer(f, 42000))
		g.want("deny", "h: answer to another port", d.end, a.end, answer(f, 42002))
	})
	step(2400*time.Millisecond, func(f family) {
		in("allow", "half-close: data", f, 41009, ack)
		g.want("deny policy", "h: answer that comes too late", d.end, a.end, answer(f, 42001))
		g.want("allow", "g: answered flows live longer", d.end, a.end, answer(f, 42000))
	})
	step(3*time.Second, func(f family) { in("allow", "a: the server sends first", f, 41000, ack) })
	step(5*time.Second, func(f family) {
		in("allow", "half-close: data", f, 41009, ack)
		out("allow", "b: the client sends first", f, 41001, ack)
		in("allow", "b: the server answers", f, 41001, ack)
		in("allow", "c: the server sends first, after the timeout", f, 41002, ack)
		out("allow", "c: the client answers", f, 41002, ack)
	})
	step(6500*time.Millisecond, func(f family) {
		in("allow", "half-close: data", f, 41009, ack)
		in("allow", "half-close: FIN", f, 41009, fin|ack)
		out("allow", "half-close: last ACK", f, 41009, ack)
	})
	var count []byte
	g.do(func() (err error) {
		count, err = os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		return err
	})
	if n := strings.TrimSpace(string(count)); n != "0" {
		t.Errorf("the node's own table has %s connections", n)
	}
}

// R10: ports are used again at once; what no flow explains makes none; both sides open at once.
func TestR10Ports(t *testing.T) {
	g := newGround(t, options{mute: true})
	a := g.pod(testenv.PodA, "IE", "E "+v4.web+" tcp/443", "E "+v6.web+" tcp/443")
	b := g.pod(testenv.PodB, "IE", "E "+v4.web+" tcp/443", "E "+v6.web+" tcp/443", "I "+v4.web+" tcp/8080", "I "+v6.web+" tcp/8080")
	each(t, g, func(t *testing.T, f family) {
		pod, web := at(f.a, 41000), at(f.web, 443)
		for i := range 100 {
			g.established(a.end, g.ext, pod, web)
			if i%2 == 0 {
				g.want("allow", "RST of the server", g.ext, a.end, testenv.TCP(web, pod, rst|ack))
				continue
			}
			g.want("allow", "FIN of the pod", a.end, g.ext, testenv.TCP(pod, web, fin|ack))
			g.want("allow", "FIN of the server", g.ext, a.end, testenv.TCP(web, pod, fin|ack))
			g.want("allow", "last ACK", a.end, g.ext, testenv.TCP(pod, web, ack))
		}
		for i := range 300 { // i: short connections
			g.established(a.end, g.ext, at(f.a, 20000+i), web)
		}
		g.stateless("k: out of nothing", func() {
			for _, flags := range []testenv.TCPFlags{ack, syn | ack, testenv.PSH | ack, fin | ack, rst, rst | ack, syn, 0, fin} {
				g.want("deny policy", fmt.Sprintf("k: flags %d of somebody else", flags), g.ext, a.end, testenv.TCP(at(f.other, 443), at(f.a, 50000), flags))
				g.want("deny policy", fmt.Sprintf("k: flags %d to somebody else", flags), a.end, g.ext, testenv.TCP(at(f.a, 50000), at(f.other, 443), flags))
			}
		})
		// D13: a SYN of the peer is a new connection even on the ports of one that lives.
		g.established(a.end, g.ext, pod, web)
		g.want("deny policy", "SYN of the server", g.ext, a.end, testenv.TCP(web, pod, syn))
		g.want("allow", "the connection lives on", g.ext, a.end, testenv.TCP(web, pod, ack))
		// Both open at once: where only one side may, its SYN is answered; where both may, both pass.
		g.want("allow", "SYN", a.end, g.ext, testenv.TCP(at(f.a, 41001), web, syn))
		g.want("deny policy", "SYN of the other side, which may not open", g.ext, a.end, testenv.TCP(web, at(f.a, 41001), syn))
		g.want("allow", "SYN ACK", g.ext, a.end, testenv.TCP(web, at(f.a, 41001), syn|ack))
		g.want("allow", "SYN ACK", a.end, g.ext, testenv.TCP(at(f.a, 41001), web, syn|ack))
		both := at(f.b, 8080)
		g.want("allow", "SYN", b.end, g.ext, testenv.TCP(both, web, syn))
		g.want("allow", "SYN of the other side, which may open", g.ext, b.end, testenv.TCP(web, both, syn))
		g.want("allow", "SYN ACK", b.end, g.ext, testenv.TCP(both, web, syn|ack))
		g.want("allow", "SYN ACK", g.ext, b.end, testenv.TCP(web, both, syn|ack))
		g.want("allow", "ACK", b.end, g.ext, testenv.TCP(both, web, ack))
	})
}

// D1: what lives when the policy changes is judged anew, as it was opened.
func TestLiveFlows(t *testing.T) {
	const grace = 4 * time.Second // a dozen packets are sent within it, on any machine
	g := newGround(t, options{mute: true, node: func(c *enforce.NodeConfig) { c.Timeouts.Grace = grace }})
	a := g.pod(testenv.PodA, "")
	for _, f := range families { // before there is any policy
		g.established(a.end, g.ext, at(f.a, 41000), at(f.web, 443))
		g.established(a.end, g.ext, at(f.a, 41001), at(f.other, 443))
		g.established(g.ext, a.end, at(f.web, 50000), at(f.a, 8080))
	}
	flow := func(want, what string, f family, src, dst string) {
		t.Helper()
		g.want(want, f.name+" "+what, a.end, g.ext, testenv.TCP(src, dst, ack))
		g.want(want, f.name+" "+what, g.ext, a.end, testenv.TCP(dst, src, ack))
	}
	set := func(rules ...string) time.Time {
		a.set("IE", rules...)
		return time.Now()
	}
	changed := set("E "+v4.web+" tcp/443", "E "+v6.web+" tcp/443")
	for _, f := range families {
		flow("allow", "kept", f, at(f.a, 41000), at(f.web, 443))
		flow("allow", "within the grace", f, at(f.a, 41001), at(f.other, 443))
		flow("allow", "opened by the peer, within the grace", f, at(f.a, 8080), at(f.web, 50000))
		g.want("deny policy", "a new one gets no grace", a.end, g.ext, testenv.TCP(at(f.a, 41002), at(f.other, 443), syn))
	}
	time.Sleep(time.Until(changed.Add(grace + 200*time.Millisecond)))
	for _, f := range families {
		flow("allow", "kept", f, at(f.a, 41000), at(f.web, 443))
		flow("deny cut", "after the grace", f, at(f.a, 41001), at(f.other, 443))
		flow("deny cut", "opened by the peer, after the grace", f, at(f.a, 8080), at(f.web, 50000))
	}
	set("E "+v4.web+" tcp/443", "E "+v6.web+" tcp/443", "E "+v4.other, "E "+v6.other, "I "+v4.web+" tcp/8080", "I "+v6.web+" tcp/8080")
	for _, f := range families {
		flow("allow", "allowed again", f, at(f.a, 41001), at(f.other, 443))
		flow("allow", "opened by the peer, allowed again", f, at(f.a, 8080), at(f.web, 50000))
	}
	a.set("")
	for _, f := range families {
		flow("allow", "without policy", f, at(f.a, 41000), at(f.web, 443))
	}
}
