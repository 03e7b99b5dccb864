package probe

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Namespace runs a function on a thread inside a network namespace. The sockets it opens stay in
// that namespace, whoever uses them later.
type Namespace interface {
	Do(func() error) error
}

// Endpoint is one address that sends, receives and answers probes.
type Endpoint struct {
	Name string
	Addr netip.Addr

	ns    Namespace
	sniff *Sniffer
	sctp  int
	tcp   map[uint16]int
	udp   map[uint16]int
}

// Open makes an endpoint for an address that ns has. It listens nowhere yet.
func Open(name string, ns Namespace, addr netip.Addr) (*Endpoint, error) {
	e := &Endpoint{Name: name, Addr: addr, ns: ns, sctp: -1, tcp: map[uint16]int{}, udp: map[uint16]int{}}
	var err error
	if e.sniff, err = OpenSniffer(ns, addr); err != nil {
		return nil, fmt.Errorf("open endpoint %s: %w", name, err)
	}
	err = ns.Do(func() (err error) {
		e.sctp, err = bound(addr, 0, unix.SOCK_RAW, int(SCTP))
		return err
	})
	if err != nil {
		e.Close()
		return nil, fmt.Errorf("open endpoint %s: %w", name, err)
	}
	return e, nil
}

// Listen makes the endpoint answer on targets. Safe to call again with the same ones.
func (e *Endpoint) Listen(targets ...Target) error {
	err := e.ns.Do(func() error {
		for _, t := range targets {
			if err := e.listen(t); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", e.Name, err)
	}
	return nil
}

func (e *Endpoint) listen(t Target) error {
	var open map[uint16]int
	var listen func(netip.Addr, uint16) (int, error)
	switch t.Proto {
	case TCP:
		open, listen = e.tcp, listenTCP
	case UDP:
		open, listen = e.udp, listenUDP
	default:
		return nil // the raw socket answers SCTP on every port, the kernel answers echo requests
	}
	if _, found := open[t.Port]; found {
		return nil
	}
	fd, err := listen(e.Addr, t.Port)
	if err != nil {
		return err
	}
	open[t.Port] = fd
	return nil
}

// Close closes every socket of the endpoint.
func (e *Endpoint) Close() {
	e.sniff.Close()
	if e.sctp >= 0 {
		_ = unix.Close(e.sctp)
	}
	for _, fd := range e.tcp {
		_ = unix.Close(fd)
	}
	for _, fd := range e.udp {
		_ = unix.Close(fd)
	}
}

// echoUDP answers every waiting datagram with itself.
func (e *Endpoint) echoUDP(buf []byte) {
	for _, fd := range e.udp {
		for {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				break
			}
			_ = unix.Sendto(fd, buf[:n], 0, from) // an answer that is not sent shows as half-open
		}
	}
}

// answerSCTP answers every waiting INIT and hands over every INIT ACK.
func (e *Endpoint) answerSCTP(buf []byte, visit func(sctpMessage)) {
	for {
		m, found := readSCTP(e.sctp, buf)
		if !found {
			return
		}
		switch m.chunk {
		case chunkInit:
			ack := sctpPacket(m.dport, m.sport, m.initiateTag, chunkInitAck)
			_ = unix.Sendto(e.sctp, ack, 0, sockaddr(m.src, 0))
		case chunkInitAck:
			visit(m)
		}
	}
}

// hangUp accepts and closes every connection that waits. Call it after the clients have looked at
// theirs.
func (e *Endpoint) hangUp() {
	for _, fd := range e.tcp {
		for {
			conn, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			_ = unix.Close(conn)
		}
	}
}
