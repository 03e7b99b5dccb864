package cluster

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/latch-cni/latch/integration/harness"
)

// inbox collects the datagrams that arrive at a pod.
type inbox struct {
	mu  sync.Mutex
	got map[string]bool
	all []net.PacketConn
}

// collect listens on UDP ports of the pod, in both families.
func (p *pod) collect(ports ...int) *inbox {
	p.n.t.Helper()
	in := &inbox{got: map[string]bool{}}
	for _, port := range ports {
		p.n.must(p.NS.Do(func() error {
			c, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			in.all = append(in.all, c)
			go in.read(c, port)
			return nil
		}))
	}
	return in
}

func (in *inbox) read(c net.PacketConn, port int) {
	b := make([]byte, 64)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		in.mu.Lock()
		in.got[fmt.Sprintf("%s>%d", b[:n], port)] = true
		in.mu.Unlock()
	}
}

func (in *inbox) close() {
	for _, c := range in.all {
		_ = c.Close()
	}
}

// take returns what arrived with a mark, without it.
func (in *inbox) take(mark string) map[string]bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := map[string]bool{}
	for s := range in.got {
		if rest, ok := strings.CutPrefix(s, mark); ok {
			out[rest] = true
		}
	}
	return out
}

// shower sends one datagram from each pod to each port of another, in both families and as new flows,
// and returns which arrived: "NAME FAMILY>PORT". It waits for those of the last pod to the first port.
func (n *node) shower(mark string, to *pod, in *inbox, from []*pod, ports ...int) (map[string]bool, error) {
	mark += " "
	for _, p := range from {
		for i, a := range to.addrs {
			text := fmt.Sprintf("%s%s %s", mark, p.name, [2]string{"v4", "v6"}[i])
			if err := send(p.NS, p.addrs[i], a, text, ports...); err != nil {
				return nil, err
			}
		}
	}
	last := from[len(from)-1].name
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		got := in.take(mark)
		if got[fmt.Sprintf("%s v4>%d", last, ports[0])] && got[fmt.Sprintf("%s v6>%d", last, ports[0])] {
			break
		}
		if time.Now().After(end) {
			return got, fmt.Errorf("blocked: of %q to %s only %q arrived", last, to.name, slices.Sorted(maps.Keys(got)))
		}
	}
	time.Sleep(2 * time.Millisecond) // for what came over another CPU
	return in.take(mark), nil
}

func send(ns *harness.NetNS, from, to netip.Addr, text string, ports ...int) error {
	return ns.Do(func() error {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		for _, port := range ports {
			if _, err := c.WriteToUDPAddrPort([]byte(text), netip.AddrPortFrom(to, uint16(port))); err != nil {
				return err
			}
		}
		return nil
	})
}
