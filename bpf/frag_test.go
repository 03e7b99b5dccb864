package bpf_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// fragments cuts the IP payload of a frame at the given offsets, which are multiples of 8.
func fragments(frame []byte, id uint16, cuts ...int) [][]byte {
	var out [][]byte
	v6 := frame[14]>>4 == 6
	header := []int{34, 54}[map[bool]int{false: 0, true: 1}[v6]]
	payload := frame[header:]
	cuts = append(append([]int{0}, cuts...), len(payload))
	for i := range len(cuts) - 1 {
		part := slices.Clone(frame[:header])
		field := cuts[i]
		more := i < len(cuts)-2
		if v6 {
			next := part[20]
			part[20] = 44
			if more {
				field |= 1
			}
			ext := []byte{next, 0, byte(field >> 8), byte(field), 0, 0, byte(id >> 8), byte(id)}
			part = append(part, ext...)
		} else {
			field /= 8
			if more {
				field |= 0x2000
			}
			binary.BigEndian.PutUint16(part[18:], id)
			be16(part[20:], field)
		}
		part = append(part, payload[cuts[i]:cuts[i+1]]...)
		if v6 {
			be16(part[18:], len(part)-54)
		} else {
			be16(part[16:], len(part)-14)
		}
		out = append(out, part)
	}
	return out
}

func bigUDP(f family, dir, lport int, remote string, rport int) []byte {
	if dir == bpf.Egress {
		return testenv.UDP(at(f.pod, lport), at(remote, rport), make([]byte, 3000)...)
	}
	return testenv.UDP(at(remote, rport), at(f.pod, lport), make([]byte, 3000)...)
}

func TestFragments(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		cut := func(d int, id uint16, remote string, rport int) [][]byte {
			return fragments(bigUDP(f, d, lport, remote, rport), id, 1480, 2960)
		}
		each := func(d int, frames [][]byte, want ...string) {
			t.Helper()
			for i, frame := range frames {
				if got := r.run(d, frame).String(); got != want[i] {
					t.Errorf("fragment %d: got %s, want %s", i, got, want[i])
				}
			}
		}
		each(dir, cut(dir, 1, f.peer, rport), "allow policy", "allow flow", "allow flow")
		each(1-dir, cut(1-dir, 1, f.peer, rport), "allow flow", "allow flow", "allow flow")
		each(dir, cut(dir, 2, f.peer, rport), "allow flow", "allow flow", "allow flow")
		each(dir, cut(dir, 3, f.other, rport), "deny policy", "deny fragment", "deny fragment")
		each(1-dir, cut(1-dir, 3, f.other, rport), "deny policy", "deny fragment", "deny fragment")

		// The memory of an id permits nothing to the next datagram of that id.
		denied := fragments(bigUDP(f, dir, lport+1000, f.peer, rport+1000), 2, 1480, 2960)
		each(dir, denied, "deny policy", "deny fragment", "deny fragment")
		each(dir, cut(dir, 2, f.peer, rport), "allow flow", "allow flow", "allow flow")

		// Later fragments of other ids, addresses and pods are strangers.
		each(dir, cut(dir, 9, f.peer, rport)[1:], "deny fragment", "deny fragment")
		each(1-dir, cut(1-dir, 2, f.peer, rport)[1:], "deny fragment", "deny fragment")
		each(dir, cut(dir, 2, f.other, rport)[1:], "deny fragment", "deny fragment")
		r.pods.At(podIfindex).Pod++
		each(dir, cut(dir, 2, f.peer, rport)[1:], "deny fragment", "deny fragment")
		r.pods.At(podIfindex).Pod--

		// The memory ends.
		r.node().Timeouts[bpf.TimeoutFragment] = 0xffffffff
		each(dir, cut(dir, 2, f.peer, rport)[1:], "deny fragment", "deny fragment")
		r.node().Timeouts[bpf.TimeoutFragment] = bpf.Stamp(time.Minute)

		// D5: a peer with no ports in its rules needs no first fragment.
		p := policy{onMiss: deny2}
		p.rules[dir] = []rule{allPorts(f.host)}
		r.load(p)
		each(dir, cut(dir, 10, f.peer, rport)[1:], "allow policy", "allow policy")
		each(1-dir, cut(1-dir, 10, f.peer, rport)[1:], "deny fragment", "deny fragment")
	})
}

// D5 asks for every port of the fragment's protocol.
func TestFragmentWithoutFirst(t *testing.T) {
	r := newRig(t)
	later := fragments(bigUDP(v4, bpf.Egress, 1, v4.peer, 2), 1, 1480)[1]
	// 33 breakpoints put the interval of UDP at the edge of a block.
	edge := func(last uint32) []point {
		b := []point{from(0, denied)}
		for i := 1; i < 31; i++ {
			b = append(b, from(key(6, i), uint32(denied+i)))
		}
		return append(b, from(key(17, 0), allowed), from(last, denied))
	}
	for _, c := range []struct {
		name  string
		ports []point
		want  string
	}{
		{"all", []point{from(0, allowed)}, "allow policy"},
		{"the protocol", ranges(17, 0, 65535), "allow policy"},
		{"the protocol but the last port", ranges(17, 0, 65534), "deny fragment"},
		{"the protocol but the first port", ranges(17, 1, 65535), "deny fragment"},
		{"another protocol", ranges(6, 0, 65535), "deny fragment"},
		{"all but a port", []point{from(0, allowed), from(key(17, 53), denied), from(key(17, 54), allowed)}, "deny fragment"},
		{"all but a port of another protocol", []point{from(0, allowed), from(key(6, 53), denied), from(key(6, 54), allowed)}, "allow policy"},
		{"two halves of other rules, inline", []point{from(0, allowed), from(key(17, 53), allow2), from(key(17, 54), allowed)}, "allow policy"},
		{"set, the protocol", []point{from(0, denied), from(key(6, 1), allowed), from(key(6, 2), denied), from(key(17, 0), allowed), from(key(18, 0), denied)}, "allow policy"},
		{"set, but the last port", []point{from(0, denied), from(key(6, 1), allowed), from(key(6, 2), denied), from(key(17, 0), allowed), from(key(17, 65535), denied)}, "deny fragment"},
		{"set, at the end of a block", edge(key(18, 0)), "allow policy"},
		{"set, at the end of a block but the last port", edge(key(17, 65535)), "deny fragment"},
		{"set, of neighbours that all allow", everyOther(17, 60, allow2), "allow policy"},
		{"set, of too many neighbours", everyOther(17, 600, allow2), "deny fragment"},
		{"set, of neighbours one of which denies", everyOther(17, 60, denied), "deny fragment"},
		{"set, last step", []point{from(0, denied), from(key(6, 1), allowed), from(key(6, 2), denied), from(key(17, 0), allowed)}, "allow policy"},
	} {
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {{v4.host, c.ports}}}})
		if got := r.run(bpf.Egress, later).String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	for miss, want := range map[uint32]string{allowed: "allow policy", denied: "deny fragment"} {
		r.load(policy{onMiss: [2]uint32{miss, miss}})
		r.want(want, bpf.Egress, later)
	}
}

// everyOther gives every other port of a protocol another result than allowed.
func everyOther(proto, n int, other uint32) []point {
	b := []point{from(0, denied)}
	for i := range n {
		b = append(b, from(key(proto, i), []uint32{allowed, other}[i%2]))
	}
	return append(b, from(key(proto, n), allowed), from(key(proto+1, 0), denied))
}

// Fragments that would hide or rewrite a header are refused.
func TestFragmentTricks(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		all := policy{onMiss: deny2, rules: [2][]rule{1: {allPorts(f.all)}}}
		r.load(all)
		tcp := testenv.TCP(at(f.pod, 41000), at(f.peer, 80), syn, make([]byte, 100)...)
		udp := testenv.UDP(at(f.pod, 41000), at(f.peer, 80), make([]byte, 100)...)
		sctp := testenv.SCTP(at(f.pod, 41000), at(f.peer, 80))
		for name, frame := range map[string][]byte{
			"first fragment of 8 bytes of TCP":  fragments(tcp, 1, 8)[0],
			"first fragment of 16 bytes of TCP": fragments(tcp, 1, 16)[0],
			"second fragment at byte 8 of TCP":  fragments(tcp, 1, 8)[1],
			"second fragment at byte 16 of TCP": fragments(tcp, 1, 16)[1],
			"first fragment of 8 bytes of SCTP": fragments(sctp, 1, 8)[0],
			"second at byte 8 of SCTP":          fragments(sctp, 1, 8)[1],
		} {
			if got := r.run(bpf.Egress, frame).String(); got != "deny malformed" {
				t.Errorf("%s: got %s", name, got)
			}
		}
		r.want("allow policy", bpf.Egress, fragments(tcp, 1, 24)[0])
		r.want("allow flow", bpf.Egress, fragments(tcp, 1, 24)[1])
		r.want("allow policy", bpf.Egress, fragments(udp, 2, 8)[0])
		r.want("allow flow", bpf.Egress, fragments(udp, 2, 8)[1])
		ping := testenv.Ping(f.pod, f.peer, false, 1, 1)
		ping = append(ping, make([]byte, 1472)...)
		if f.index == bpf.V4 {
			be16(ping[16:], len(ping)-14)
		} else {
			be16(ping[18:], len(ping)-54)
		}
		parts := fragments(ping, 3, 1472)
		r.want("allow policy", bpf.Egress, parts[0])
		r.want("allow flow", bpf.Egress, parts[1]) // 8 bytes are left
		if f.index == bpf.V6 {
			// A fragment header with nothing left out is a whole packet.
			r.clear()
			r.want("allow policy", bpf.Egress, withExt(tcp, 44))
			r.want("allow policy", bpf.Egress, withExt(tcp, 60, 44, 60))
			// The chain of headers belongs into the first fragment.
			long := withExt(tcp, 60, 60, 60)
			parts := fragments(long, 4, 16)
			r.want("deny malformed", bpf.Egress, parts[0])
		}
	})
}

// Exempt traffic is exempt in fragments, too.
func TestFragmentsOfTheNode(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2})
		in := fragments(bigUDP(f, bpf.Ingress, 80, f.other, 1), 1, 1480)
		for _, ingress := range []uint32{0, podIfindex} {
			want := map[uint32]string{0: "allow node", podIfindex: "allow hairpin"}[ingress]
			for _, frame := range in {
				if got := r.runFrom(bpf.Ingress, frame, ingress).String(); got != want && got != "allow flow" {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			r.clear()
		}
		r.addNodeAddr(f)
		r.listen("udp", f.node, 1)
		for _, frame := range slices.Backward(fragments(bigUDP(f, bpf.Egress, 80, f.node, 1), 1, 1480)) {
			r.want("allow node", bpf.Egress, frame)
		}
	})
}
