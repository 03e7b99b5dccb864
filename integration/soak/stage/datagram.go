package stage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	magic      = 0x6c617463
	headers    = 28 // IPv4 and UDP
	payload    = 8  // magic, pod
	bufferSize = 32 << 20
)

// datagram is what is read of one that arrived.
type datagram struct {
	pod  uint32
	port uint16
}

// sender sends crafted datagrams from one namespace, each from another source port.
type sender struct {
	fd   int
	next atomic.Uint32
}

// newSender opens the socket. It must run in the namespace.
func newSender() (*sender, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}
	return &sender{fd: fd}, nil
}

func (s *sender) Close() error { return unix.Close(s.fd) }

// send sends a datagram of a flow of its own. Packets that the node drops are no error.
func (s *sender) send(pod uint32, from, to netip.Addr, port uint16) error {
	return s.sendFrom(pod, from, uint16(10000+s.next.Add(1)%50000), to, port)
}

// sendFrom sends a datagram from one port.
func (s *sender) sendFrom(pod uint32, from netip.Addr, source uint16, to netip.Addr, port uint16) error {
	var b [headers + payload]byte
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	copy(b[12:], from.AsSlice())
	copy(b[16:], to.AsSlice())
	binary.BigEndian.PutUint16(b[20:], source)
	binary.BigEndian.PutUint16(b[22:], port)
	binary.BigEndian.PutUint16(b[24:], 8+payload)
	binary.BigEndian.PutUint32(b[headers:], magic)
	binary.BigEndian.PutUint32(b[headers+4:], pod)
	err := unix.Sendto(s.fd, b[:], 0, &unix.SockaddrInet4{Addr: to.As4()})
	if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("send datagram: %w", err)
	}
	return nil
}

// count reads every datagram that arrives in the namespace in which it is called, until it is closed.
func (s *Stage) count(arrived func(datagram)) (io.Closer, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("open raw socket: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferSize)
	f := os.NewFile(uintptr(fd), "datagrams")
	s.wg.Go(func() {
		b := make([]byte, 2048)
		for {
			n, err := f.Read(b)
			if err != nil {
				return // closed
			}
			if n >= headers+payload && binary.BigEndian.Uint32(b[headers:]) == magic {
				arrived(datagram{binary.BigEndian.Uint32(b[headers+4:]), binary.BigEndian.Uint16(b[22:])})
			}
		}
	})
	return f, nil
}

// Counts are datagrams by port.
type Counts struct {
	always, never, other atomic.Int64
	versions             [16]atomic.Int64
}

func (c *Counts) of(port uint16) *atomic.Int64 {
	switch {
	case port == Always:
		return &c.always
	case port == Never:
		return &c.never
	case port >= Versions && port <= lastPort:
		return &c.versions[port-Versions]
	}
	return &c.other
}

func (c *Counts) count(port uint16) { c.of(port).Add(1) }

// Of is how many have been counted for a port.
func (c *Counts) Of(port uint16) int64 { return c.of(port).Load() }

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

func neighbour(on netlink.Link, addr netip.Addr, at netlink.Link) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: on.Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(),
		HardwareAddr: at.Attrs().HardwareAddr}
}
