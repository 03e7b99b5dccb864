package packets

import (
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// burst sends frames without waiting for the fate of each, then waits until those that arrive at an end
// have been looked at there: the next one is not to wait behind them.
func (g *ground) burst(from, to *end, n int, frame func(i int) []byte) {
	g.t.Helper()
	for i := range n {
		if err := from.out.Send(testenv.WithMAC(frame(i), from.mac, from.via)); err != nil {
			g.t.Fatalf("send frame %d: %v", i, err)
		}
	}
	for last := -1; last != to.looked(); time.Sleep(100 * time.Millisecond) {
		last = to.looked()
	}
}

func (e *end) looked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.frames
}

// received is how many packets have come in on an interface.
func (g *ground) received(ns *testenv.NetNS, dev string) int {
	g.t.Helper()
	return int(ns.Link(g.t, dev).Attrs().Statistics.RxPackets)
}

// alone runs a test for each family on a ground of its own: the families share a pod's share.
func alone(t *testing.T, run func(t *testing.T, g *ground, f family)) {
	t.Helper()
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) { run(t, newGround(t, options{mute: true}), f) })
	}
}

// 20 000 datagrams of a pod whose second fragments all come after all first ones, more than its share of
// the memory: what is lost is counted by its reason, and another pod's datagram loses nothing.
func TestFloodOfFragments(t *testing.T) {
	const (
		flood      = 20000
		table      = 32768
		remembered = table/4 + table/8 // the pod's share, and all that spills
		noise      = 50                // what stacks send by themselves
		congested  = flood / 50        // what queues of a busy machine may lose
	)
	alone(t, func(t *testing.T, g *ground, f family) {
		a := g.pod(testenv.PodA, "E", "E "+f.web+" udp/7000")
		b := g.pod(testenv.PodB, "IE", "E "+f.web+" udp/7000")
		datagrams := func(pod string) (first, second func(i int) []byte) {
			whole := datagram(at(pod, 6000), at(f.web, 7000), 100)
			data := whole[14+f.header():]
			return func(i int) []byte { return f.fragment(whole, uint16(i), 0, true, data[:64]) },
				func(i int) []byte { return f.fragment(whole, uint16(i), 64, false, data[64:]) }
		}
		first, second := datagrams(f.a)
		othersFirst, othersSecond := datagrams(f.b)
		g.want("allow", "first fragment of another pod", b.end, g.ext, othersFirst(1))

		over, lost := g.allowed(bpf.ReasonOverShare), g.drops()[uint8(bpf.ReasonFragment)]
		sent, came := g.received(g.Node, a.HostName), g.received(g.Ext, "eth0")
		g.burst(a.end, g.ext, flood, first)
		g.want("allow", "first fragment of another pod, during the flood", b.end, g.ext, othersFirst(2))
		g.burst(a.end, g.ext, flood, second)
		g.want("allow", "second fragment of another pod", b.end, g.ext, othersSecond(1))
		g.want("allow", "second fragment of another pod, of the other datagram", b.end, g.ext, othersSecond(2))

		over, lost = g.allowed(bpf.ReasonOverShare)-over, g.drops()[uint8(bpf.ReasonFragment)]-lost
		sent, came = g.received(g.Node, a.HostName)-sent, g.received(g.Ext, "eth0")-came
		t.Logf("of %d fragments %d came and %d were dropped, %d datagrams were over the share", sent, came, lost, over)
		if lost < flood-3*remembered/2 || lost > flood-table/4 {
			t.Errorf("%d second fragments were dropped, about %d datagrams are remembered", lost, remembered)
		}
		if allowed := sent - int(lost); came < allowed-congested || came > allowed+noise {
			t.Errorf("%d packets came, %d were not dropped", came, allowed)
		}
		if over < flood-table/2 || over > flood-table/4 {
			t.Errorf("%d datagrams counted as over the share, of %d", over, flood)
		}
		g.want("deny fragment", "control: second fragment without a first", b.end, g.ext, othersSecond(3))
	})
}

// One pod floods the tables with flows, and is flooded by what its policy lets in; another one, all the
// while, opens flows and keeps those that it has.
func TestFloodOfFlows(t *testing.T) {
	const (
		rounds, wave = 8, 3000
		share        = 16384 / 4
	)
	alone(t, func(t *testing.T, g *ground, f family) {
		rules := []string{"E " + f.web + " udp/7000", "E " + f.web + " tcp/443"}
		a := g.pod(testenv.PodA, "IE", append(rules, "I "+f.other)...)
		b := g.pod(testenv.PodB, "IE", rules...)
		g.established(b.end, g.ext, at(f.b, 41000), at(f.web, 443))
		g.want("allow", "query before the flood", b.end, g.ext, datagram(at(f.b, 5000), at(f.web, 7000), 10))
		over, began := g.allowed(bpf.ReasonOverShare), time.Now()
		for round := range rounds {
			if round%2 == 0 {
				g.burst(a.end, g.ext, wave, func(i int) []byte { return datagram(at(f.a, 1024+round*wave+i), at(f.web, 7000), 10) })
			} else {
				g.burst(g.ext, a.end, wave, func(i int) []byte {
					return datagram(at(f.other, 1024+round*wave+i), at(f.a, 9000), 10)
				})
			}
			g.want("allow", "answer to a query of before", g.ext, b.end, datagram(at(f.web, 7000), at(f.b, 5000), 10))
			g.want("allow", "segment to the pod", g.ext, b.end, testenv.TCP(at(f.web, 443), at(f.b, 41000), ack))
			g.want("allow", "segment of the pod", b.end, g.ext, testenv.TCP(at(f.b, 41000), at(f.web, 443), ack))
			g.want("allow", "new query", b.end, g.ext, datagram(at(f.b, 5001+round), at(f.web, 7000), 10))
			g.want("allow", "its answer", g.ext, b.end, datagram(at(f.web, 7000), at(f.b, 5001+round), 10))
			g.want("deny policy", "control: answer to no query", g.ext, b.end, datagram(at(f.web, 7000), at(f.b, 6000), 10))
		}
		over = g.allowed(bpf.ReasonOverShare) - over
		shares := 3 + int(time.Since(began)/(15*time.Second)) // a slow machine is given one every 16 s
		if int(over) < rounds*wave-shares*share || over > rounds*wave-share {
			t.Errorf("%d flows were counted as over the share, of %d", over, rounds*wave)
		}
		g.want("allow", "the flooding pod's new query", a.end, g.ext, datagram(at(f.a, 1000), at(f.web, 7000), 10))
		g.want("allow", "its answer", g.ext, a.end, datagram(at(f.web, 7000), at(f.a, 1000), 10))
		answered, asked := 0, 0
		for i := 0; i < rounds*wave; i += wave / 10 {
			if i/wave%2 == 0 { // a round of queries
				asked++
				if g.fate(g.ext, a.end, datagram(at(f.web, 7000), at(f.a, 1024+i), 10)) == "allow" {
					answered++
				}
			}
		}
		if answered == asked {
			t.Errorf("control: all of %d answers to its queries pass, it has pushed out none", asked)
		}
	})
}

// allowed is how many packets were judged and allowed for a reason.
func (g *ground) allowed(reason bpf.Reason) uint64 {
	g.t.Helper()
	return g.counters(func(k bpf.CounterKey) bool { return k.Allow == 1 })[uint8(reason)]
}
