package regress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/testenv"
)

// deniedPerLife is how many packets of a life are dropped: rows 2 and 4 at the pod, row 6 twice, in both
// families, but the metadata service has IPv4 only.
const deniedPerLife = 2 + 1 + 2*2

// serve starts the server in the pod, for all its lives: it listens before there is an interface. To listen
// again in each life would fail now and then: a child that another life is about to start has a copy of
// every descriptor until it becomes the plugin, so that a server is not closed when close returns.
func (l *life) serve() {
	l.g.t.Helper()
	l.ns.ListenTCP(l.g.t, "[::]:8080")
}

// port is a local port that no earlier life can still have, for the same reason.
func (l *life) port(first uint16) uint16 { return first + uint16(10*(l.n%500)) }

// sendOut sends a SYN out of the pod, which must not come out.
func (l *life) sendOut(src netip.Addr, sport uint16, dst netip.Addr, port uint16) error {
	p := packet{from: l.spec.Name, to: dst.String(), src: src, dst: dst, proto: "tcp", sport: sport, dport: port, mark: l.g.mark.Add(1)}
	to := unix.Sockaddr(&unix.SockaddrInet6{Addr: dst.As16()})
	fd := l.raw[1]
	if dst.Is4() {
		to, fd = &unix.SockaddrInet4{Addr: dst.As4()}, l.raw[0]
	}
	l.forbid(p, "web")
	return unix.Sendto(fd, p.frame()[14:], 0, to) // the kernel makes the Ethernet header
}

// sendIn sends a SYN to the pod, which must not come in.
func (l *life) sendIn(from string, src netip.Addr, sport uint16, own netip.Addr) error {
	p := packet{from: from, to: l.spec.Name, src: src, dst: own, proto: "tcp", sport: sport, dport: 8080, mark: l.g.mark.Add(1)}
	l.forbid(p, l.spec.Name)
	return l.g.send(p)
}

func (l *life) forbid(p packet, at string) {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	l.g.forbidden = append(l.g.forbidden, sighting{p, at})
}

// resolve asks a server that answers late.
func (l *life) resolve(own, dns netip.Addr) error {
	var c net.Conn
	err := l.ns.Do(func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(own, l.port(50001))), net.UDPAddrFromAddrPort(netip.AddrPortFrom(dns, 53)))
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(arrival))
	return testenv.Echo(c)
}

// table does everything of R1 at once, in both families.
func (l *life) table(p *pod) error {
	type try struct {
		name string
		do   func() error
	}
	var all []try
	for i, own := range []netip.Addr{p.Addr4, p.Addr6} {
		web, dns := l.g.names["web"][i], l.g.names["D"][i]
		all = append(all,
			try{"1: to the database", func() error { return askIn(l.ns, own, l.port(40001), web, 443) }},
			try{"2: to another port", func() error { return l.sendOut(own, 40002, web, 2047) }},
			try{"3: a name that is resolved slowly", func() error { return l.resolve(own, dns) }},
			try{"5: from B", func() error { return l.g.ask("B", l.g.names["B"][i], 0, own, 8080) }},
			try{"6: from C", func() error { return l.sendIn("C", l.g.names["C"][i], 41002, own) }},
			try{"6: from outside", func() error { return l.sendIn("other", l.g.names["other"][i], 41003, own) }},
			try{"7: from the node", func() error { return askIn(l.g.Node, l.g.names["node"][i], 0, own, 8080) }},
		)
	}
	all = append(all, try{"4: to the metadata service", func() error {
		return l.sendOut(p.Addr4, 40003, l.g.names["imds"][0], 80)
	}})
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, a := range all {
		wg.Go(func() {
			if err := a.do(); err != nil {
				errs[i] = fmt.Errorf("%s: %w", a.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
