package probe

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Chunk types of RFC 9260.
const (
	chunkInit    = 1
	chunkInitAck = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sctpPacket makes a packet with one INIT or INIT ACK chunk. An INIT ACK carries the state cookie
// that the RFC demands.
func sctpPacket(sport, dport uint16, tag uint32, chunk uint8) []byte {
	const common, fixed, cookie = 12, 20, 8
	size := fixed
	if chunk == chunkInitAck {
		size += cookie
	}
	p := make([]byte, common+size)
	binary.BigEndian.PutUint16(p[0:], sport)
	binary.BigEndian.PutUint16(p[2:], dport)
	binary.BigEndian.PutUint32(p[4:], tag)
	c := p[common:]
	c[0] = chunk
	binary.BigEndian.PutUint16(c[2:], uint16(size))
	binary.BigEndian.PutUint32(c[4:], uint32(sport)<<16|uint32(dport)) // initiate tag, not 0
	binary.BigEndian.PutUint32(c[8:], 1<<16)                           // receiver window
	binary.BigEndian.PutUint16(c[12:], 1)                              // outbound streams
	binary.BigEndian.PutUint16(c[14:], 1)                              // inbound streams
	binary.BigEndian.PutUint32(c[16:], 1)                              // initial TSN
	if chunk == chunkInitAck {
		binary.BigEndian.PutUint16(c[20:], 7) // state cookie
		binary.BigEndian.PutUint16(c[22:], cookie)
	}
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, castagnoli))
	return p
}

// sctpMessage is a received INIT or INIT ACK.
type sctpMessage struct {
	src          netip.Addr
	sport, dport uint16
	initiateTag  uint32
	chunk        uint8
}

// readSCTP reads one packet from a raw socket, which prepends the IP header for IPv4 only. It
// returns false when nothing is there; a packet that is no INIT or INIT ACK has chunk 0.
func readSCTP(fd int, buf []byte) (sctpMessage, bool) {
	n, from, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return sctpMessage{}, false
	}
	m := sctpMessage{src: addrPort(from).Addr()}
	b := buf[:n]
	if m.src.Is4() {
		if len(b) < 20 || len(b) < int(b[0]&15)*4 {
			return m, true
		}
		b = b[int(b[0]&15)*4:]
	}
	if len(b) < 32 || (b[12] != chunkInit && b[12] != chunkInitAck) {
		return m, true
	}
	m.sport, m.dport = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	m.chunk, m.initiateTag = b[12], binary.BigEndian.Uint32(b[16:])
	return m, true
}
