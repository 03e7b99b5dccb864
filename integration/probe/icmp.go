package probe

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Types of RFC 792 and RFC 4443.
const (
	icmp4Echo, icmp4Reply = 8, 0
	icmp6Echo, icmp6Reply = 128, 129
)

// ping sends an echo request whose identifier is the round's port. The kernel fills in the checksum
// of ICMPv6 alone.
func (r *round) ping(q Probe) error {
	fd, found := r.echo[q.From]
	if !found {
		var err error
		if fd, err = bound(q.From.Addr, 0, unix.SOCK_RAW, ICMP.onWire(q.From.Addr)); err != nil {
			return err
		}
		r.mu.Lock()
		r.echo[q.From] = fd
		r.fds = append(r.fds, fd)
		r.mu.Unlock()
	}
	msg := make([]byte, 16)
	msg[0] = icmp6Echo
	binary.BigEndian.PutUint16(msg[4:], r.port)
	if q.From.Addr.Is4() {
		msg[0] = icmp4Echo
		binary.BigEndian.PutUint16(msg[2:], checksum(msg))
	}
	return unix.Sendto(fd, msg, 0, sockaddr(q.To.Addr, 0))
}

// sendRaw sends a packet of a protocol that nobody answers. It begins with two ports, so that the
// sniffer tells rounds apart.
func (r *round) sendRaw(q Probe) error {
	fd, err := bound(q.From.Addr, 0, unix.SOCK_RAW, int(q.Proto))
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.fds = append(r.fds, fd)
	r.mu.Unlock()
	msg := make([]byte, 16)
	binary.BigEndian.PutUint16(msg, r.port)
	binary.BigEndian.PutUint16(msg[2:], q.Port)
	return unix.Sendto(fd, msg, 0, sockaddr(q.To.Addr, 0))
}

// readEchoReply reads one message from a raw ICMP socket. The identifier is 0 if it is no echo reply.
func readEchoReply(fd int, buf []byte) (from netip.Addr, id uint16, found bool) {
	n, sa, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return from, 0, false
	}
	from = addrPort(sa).Addr()
	b, reply := buf[:n], uint8(icmp6Reply)
	if from.Is4() {
		if len(b) < 20 || len(b) < int(b[0]&15)*4 {
			return from, 0, true
		}
		b, reply = b[int(b[0]&15)*4:], icmp4Reply
	}
	if len(b) < 8 || b[0] != reply {
		return from, 0, true
	}
	return from, binary.BigEndian.Uint16(b[4:]), true
}

// checksum is that of RFC 1071 over an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
