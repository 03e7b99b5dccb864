package policy

import (
	"crypto/sha256"
	"encoding/binary"
)

// Hash digests what the kernel holds of the rules: OnMiss and Entries with their rule ids, not the
// Sources. Rules that are equal have equal hashes, however they came to be.
//
// Ports are digested once per slice and enter as their digest, since Compile shares slices.
func (r *Rules) Hash() [sha256.Size]byte {
	type list struct {
		first *Breakpoint
		n     int
	}
	digests := make(map[list][sha256.Size]byte)
	h := sha256.New()
	buf := make([]byte, 0, 1<<16)
	for _, d := range Directions {
		buf = binary.BigEndian.AppendUint32(buf, r.OnMiss[d].word())
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(r.Entries[d])))
		for _, e := range r.Entries[d] {
			buf = append(buf, byte(e.Prefix.Addr().BitLen()), byte(e.Prefix.Bits()))
			addr := e.Prefix.Addr().As16()
			buf = append(buf, addr[:]...)
			var key list
			if len(e.Ports) > 0 {
				key = list{&e.Ports[0], len(e.Ports)}
			}
			sum, ok := digests[key]
			if !ok {
				sum = digestPorts(e.Ports)
				digests[key] = sum
			}
			buf = append(buf, sum[:]...)
			if len(buf) > 1<<16-64 {
				h.Write(buf)
				buf = buf[:0]
			}
		}
	}
	h.Write(buf)
	return [sha256.Size]byte(h.Sum(nil))
}

func digestPorts(ports []Breakpoint) [sha256.Size]byte {
	buf := make([]byte, 0, 8*len(ports))
	for _, p := range ports {
		buf = binary.BigEndian.AppendUint32(buf, p.Start)
		buf = binary.BigEndian.AppendUint32(buf, p.Result.word())
	}
	return sha256.Sum256(buf)
}
