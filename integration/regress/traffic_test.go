package regress

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// handshake connects from one end to an echo server at another and exchanges words, in every family
// that both have. local is a port, 0 takes a free one.
func (g *ground) handshake(from string, local uint16, to string, port uint16) {
	g.t.Helper()
	for _, f := range g.pairs(from, to) {
		if err := g.ask(from, f[0], local, f[1], port); err != nil {
			g.t.Errorf("%s:%d > %s:%d (%s > %s): %v", from, local, to, port, f[0], f[1], err)
		}
	}
}

func (g *ground) ask(from string, src netip.Addr, local uint16, dst netip.Addr, port uint16) error {
	return askIn(g.netns(from), src, local, dst, port)
}

// askIn connects from a namespace to an echo server and exchanges words. The connection ends by RST, so
// that its ports can be used again at once.
func askIn(ns *testenv.NetNS, src netip.Addr, local uint16, dst netip.Addr, port uint16) error {
	c, err := ns.DialFrom("tcp", netip.AddrPortFrom(src, local).String(), netip.AddrPortFrom(dst, port).String(), arrival)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.SetDeadline(time.Now().Add(arrival))
	return testenv.Echo(c)
}

// pairs are the addresses of two names by family.
func (g *ground) pairs(from, to string) (out [][2]netip.Addr) {
	for _, a := range g.addresses(from) {
		for _, b := range g.addresses(to) {
			if a.Is4() == b.Is4() {
				out = append(out, [2]netip.Addr{a, b})
			}
		}
	}
	return out
}

func (g *ground) netns(name string) *testenv.NetNS {
	if name == "node" {
		return g.Node
	}
	return g.ends[name].ns
}

// listen starts echo servers at an end, for all its addresses.
func (g *ground) listen(name string, ports ...uint16) {
	g.t.Helper()
	for _, a := range g.addresses(name) {
		for _, port := range ports {
			g.netns(name).ListenTCP(g.t, netip.AddrPortFrom(a, port).String())
		}
	}
}

// rain is a sender of datagrams and of new connections, and what has become of them.
type rain struct {
	sent, got atomic.Int64 // datagrams
	tried     atomic.Int64 // connections
	failed    atomic.Pointer[string]

	stop chan struct{}
	wg   sync.WaitGroup
}

// rain sends numbered datagrams and opens connections from one end to another until stopped. Each
// datagram must arrive and each connection must be answered.
func (g *ground) rain(from, to string, port uint16, datagrams, connections time.Duration) *rain {
	g.t.Helper()
	r := &rain{stop: make(chan struct{})}
	for _, f := range g.pairs(from, to) {
		in := g.netns(to).PacketConn(g.t, netip.AddrPortFrom(f[1], port).String())
		_ = in.(*net.UDPConn).SetReadBuffer(4 << 20)
		out := g.netns(from).PacketConn(g.t, netip.AddrPortFrom(f[0], 0).String())
		go func() {
			for b := make([]byte, 64); ; {
				n, _, err := in.ReadFrom(b)
				if err != nil {
					return
				}
				if string(b[:n]) == "rain" { // tables have packets for this port, too
					r.got.Add(1)
				}
			}
		}()
		dst := net.UDPAddrFromAddrPort(netip.AddrPortFrom(f[1], port))
		r.every(datagrams, func() {
			if _, err := out.WriteTo([]byte("rain"), dst); err == nil {
				r.sent.Add(1)
			}
		})
		r.every(connections, func() {
			r.tried.Add(1)
			if err := g.ask(from, f[0], 0, f[1], port); err != nil {
				why := fmt.Sprintf("connection %d at %s: %v", r.tried.Load(), time.Now().Format("05.000"), err)
				r.failed.CompareAndSwap(nil, &why)
			}
		})
	}
	g.t.Cleanup(r.end)
	return r
}

func (r *rain) every(pace time.Duration, do func()) {
	r.wg.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			select {
			case <-r.stop:
				return
			case <-tick.C:
				do()
			}
		}
	})
}

func (r *rain) end() {
	select {
	case <-r.stop:
	default:
		close(r.stop)
	}
	r.wg.Wait()
}

// lossless stops the rain and requires that none of it was lost.
func (g *ground) lossless(what string, r *rain) {
	g.t.Helper()
	r.end()
	if why := r.failed.Load(); why != nil {
		g.t.Errorf("%s: %s", what, *why)
	}
	if r.tried.Load() == 0 || r.sent.Load() == 0 {
		g.t.Errorf("%s: nothing was sent", what)
	}
	g.eventually(arrival, func() error {
		if sent, got := r.sent.Load(), r.got.Load(); sent != got {
			return fmt.Errorf("%s: %d of %d datagrams are lost", what, sent-got, sent)
		}
		return nil
	})
	g.t.Logf("%s: %d datagrams, %d connections", what, r.sent.Load(), r.tried.Load())
}

// knock sends packets of a table again and again until stopped. All that arrive are a mistake.
func (g *ground) knock(pace time.Duration, table string) (stop func() (arrived []string)) {
	g.t.Helper()
	rows := g.rows(table)
	r := &rain{stop: make(chan struct{})}
	g.knocking.Add(1)
	var sent atomic.Int64
	r.every(pace, func() {
		for _, row := range rows {
			if g.send(row.packet) == nil {
				sent.Add(1)
			}
		}
	})
	g.t.Cleanup(r.end)
	return func() (arrived []string) {
		r.end()
		g.knocking.Add(-1)
		if sent.Load() == 0 {
			arrived = append(arrived, "nothing was sent")
		}
		seen := g.sightings(rows)
		for _, row := range rows {
			if n := seen[row.at][row.mark]; n > 0 {
				arrived = append(arrived, fmt.Sprintf("%s: arrived %d times", row.packet, n))
			}
		}
		return arrived
	}
}
