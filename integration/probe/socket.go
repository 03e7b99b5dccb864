package probe

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// bufferBytes holds the packets of a whole round, should the collector be late.
const bufferBytes = 8 << 20

func domain(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// bound opens a non-blocking socket bound to an address. It must run in the namespace of the address.
func bound(a netip.Addr, port uint16, kind, proto int) (int, error) {
	fd, err := unix.Socket(domain(a), kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return -1, fmt.Errorf("open socket of protocol %d: %w", proto, err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, sockaddr(a, port)))
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("bind protocol %d to %v: %w", proto, netip.AddrPortFrom(a, port), err)
	}
	return fd, nil
}

// resetOnClose makes close send a RST: no TIME_WAIT is left and no FIN wanders on.
func resetOnClose(fd int) error {
	return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

func listenTCP(a netip.Addr, port uint16) (int, error) {
	fd, err := bound(a, port, unix.SOCK_STREAM, unix.IPPROTO_TCP)
	if err != nil {
		return -1, err
	}
	if err := errors.Join(resetOnClose(fd), unix.Listen(fd, 1024)); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("listen on %v: %w", netip.AddrPortFrom(a, port), err)
	}
	return fd, nil
}

func listenUDP(a netip.Addr, port uint16) (int, error) {
	fd, err := bound(a, port, unix.SOCK_DGRAM, unix.IPPROTO_UDP)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("grow receive buffer: %w", err)
	}
	return fd, nil
}

// refused tells errors of sending that only mean "the network does not take it" from errors of the
// prober itself, like a port in use or no more descriptors.
func refused(err error) bool {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.EINVAL, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ECONNREFUSED, unix.ENOBUFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
