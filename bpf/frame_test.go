package bpf_test

import (
	"slices"
	"testing"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// withTag puts a VLAN tag (its type and its control information) before the ethertype.
func withTag(frame []byte, kind, tci int) []byte {
	tag := []byte{byte(kind >> 8), byte(kind), byte(tci >> 8), byte(tci)}
	return slices.Insert(slices.Clone(frame), 12, tag...)
}

func withType(frame []byte, kind int) []byte {
	frame = slices.Clone(frame)
	be16(frame[12:], kind)
	return frame
}

// What is no IP passes only where no policy bears on the pod.
func TestEthertypes(t *testing.T) {
	r := newRig(t)
	ip := v4.open(bpf.Egress, v4.peer, 80)
	ip6 := v6.open(bpf.Egress, v6.peer, 80)
	arp := withType(ip, 0x0806)
	open := policy{onMiss: [2]uint32{allowed, allowed}}
	closed := policy{onMiss: deny2, rules: [2][]rule{1: {allPorts(v4.host), allPorts(v6.host)}}}
	for _, c := range []struct {
		name       string
		frame      []byte
		open, shut string
	}{
		{"IPv4", ip, "allow policy", "allow policy"},
		{"IPv6", ip6, "allow policy", "allow policy"},
		{"IPv4 by priority tag", withTag(ip, 0x8100, 0xe000), "allow policy", "allow policy"},
		{"IPv6 by priority tag", withTag(ip6, 0x8100, 0xe000), "allow policy", "allow policy"},
		{"IPv4 by two priority tags", withTag(withTag(ip, 0x8100, 0), 0x88a8, 0), "allow policy", "allow policy"},
		{"IPv4 by three priority tags", withTag(withTag(withTag(ip, 0x8100, 0), 0x8100, 0), 0x8100, 0), "allow ethertype", "deny ethertype"},
		{"IPv4 of a VLAN", withTag(ip, 0x8100, 5), "allow ethertype", "deny ethertype"},
		{"IPv4 of a VLAN behind a priority tag", withTag(withTag(ip, 0x8100, 5), 0x8100, 0), "allow ethertype", "deny ethertype"},
		{"tag and nothing behind", withTag(ip, 0x8100, 0)[:16], "allow ethertype", "deny ethertype"},
		{"another ethertype", withType(ip, 0x88cc), "allow ethertype", "deny ethertype"},
		{"802.3 length", withType(ip, 60), "allow ethertype", "deny ethertype"},
		{"MPLS", withType(ip, 0x8847), "allow ethertype", "deny ethertype"},
		{"IPv6 in a frame of IPv4", withType(ip6, 0x0800), "allow malformed", "deny malformed"},
		{"ARP", arp, "allow flow", "allow flow"},
		{"ARP by priority tag", withTag(arp, 0x8100, 0), "allow flow", "allow flow"},
	} {
		if len(c.frame) < 14+20 { // test-run wants a whole header of what the ethertype says
			c.frame = append(c.frame, 0)
		}
		r.clear()
		r.load(open)
		r.want(c.open, bpf.Egress, c.frame)
		r.clear()
		r.load(closed)
		if got := r.run(bpf.Egress, c.frame).String(); got != c.shut {
			t.Errorf("%s: got %s, want %s", c.name, got, c.shut)
		}
		// Rules for one direction are policy for both.
		if c.shut == "deny ethertype" {
			r.load(policy{onMiss: [2]uint32{allowed, allowed}, rules: [2][]rule{1: {denyAll(v6.host)}}})
			r.want("deny ethertype", bpf.Egress, c.frame)
			r.want("deny ethertype", bpf.Ingress, c.frame)
		}
	}
	*r.pods.At(podIfindex) = bpf.PodState{}
	r.want("allow flow", bpf.Egress, arp)
	r.want("deny no-state", bpf.Egress, withType(ip, 0x88cc))
}

// edit returns a copy of the frame with bytes of the IP header or behind it changed.
func edit(frame []byte, change func(ip []byte)) []byte {
	frame = slices.Clone(frame)
	change(frame[14:])
	return frame
}

// What its receiver could understand otherwise than we do is dropped.
func TestMalformed(t *testing.T) {
	r := newRig(t)
	tcp4 := testenv.TCP(at(v4.pod, 41000), at(v4.peer, 80), syn, make([]byte, 40)...)
	udp4 := testenv.UDP(at(v4.pod, 41000), at(v4.peer, 80), make([]byte, 40)...)
	tcp6 := testenv.TCP(at(v6.pod, 41000), at(v6.peer, 80), syn, make([]byte, 40)...)
	udp6 := testenv.UDP(at(v6.pod, 41000), at(v6.peer, 80), make([]byte, 40)...)
	icmp4, icmp6 := v4.ping(bpf.Egress, v4.peer, false, 1), v6.ping(bpf.Egress, v6.peer, false, 1)
	sctp4 := testenv.SCTP(at(v4.pod, 41000), at(v4.peer, 80))
	for name, frame := range map[string][]byte{
		"version 5":                     edit(tcp4, func(ip []byte) { ip[0] = 0x55 }),
		"version 4 in IPv6":             edit(tcp6, func(ip []byte) { ip[0] = 0x40 }),
		"header of 16 bytes":            edit(tcp4, func(ip []byte) { ip[0] = 0x44 }),
		"header of 0 bytes":             edit(tcp4, func(ip []byte) { ip[0] = 0x40 }),
		"header longer than the packet": edit(truncate(tcp4, 14+24), func(ip []byte) { ip[0] = 0x4f }),
		"length beyond the frame":       edit(tcp4, func(ip []byte) { be16(ip[2:], len(ip)+1) }),
		"length within the header":      edit(tcp4, func(ip []byte) { be16(ip[2:], 19) }),
		"length of the header alone":    edit(tcp4, func(ip []byte) { be16(ip[2:], 20) }),
		"length 0":                      edit(tcp4, func(ip []byte) { be16(ip[2:], 0) }),
		"IPv6 length beyond the frame":  edit(tcp6, func(ip []byte) { be16(ip[4:], len(ip)-40+1) }),
		"IPv6 length 0":                 edit(tcp6, func(ip []byte) { be16(ip[4:], 0) }),
		"TCP of 19 bytes":               truncate(tcp4, 14+20+19),
		"TCP of 4 bytes":                truncate(tcp4, 14+20+4),
		"TCP of 3 bytes":                truncate(tcp4, 14+20+3),
		"TCP of 19 bytes on IPv6":       truncate(tcp6, 14+40+19),
		"TCP cut by the IP length":      edit(tcp4, func(ip []byte) { be16(ip[2:], 39) }),
		"TCP header of 16 bytes":        edit(tcp4, func(ip []byte) { ip[32] = 0x40 }),
		"TCP header beyond the packet":  edit(truncate(tcp4, 14+40), func(ip []byte) { ip[32] = 0x60 }),
		"TCP header of 0 on IPv6":       edit(tcp6, func(ip []byte) { ip[52] = 0 }),
		"UDP of 7 bytes":                truncate(udp4, 14+20+7),
		"UDP of 7 bytes on IPv6":        truncate(udp6, 14+40+7),
		"SCTP of 11 bytes":              truncate(sctp4, 14+20+11),
		"ICMP of 7 bytes":               truncate(icmp4, 14+20+7),
		"ICMPv6 of 7 bytes":             truncate(icmp6, 14+40+7),
		"options instead of ports":      truncate(withOptions(udp4, 40), 14+60+7),
		"loose source route":            withOption(udp4, 131, 7, 4, 203, 0, 113, 1),
		"strict source route":           withOption(udp4, 137, 7, 4, 203, 0, 113, 1),
		"source route not for copying":  withOption(udp4, 3, 7, 4, 203, 0, 113, 1),
		"source route behind others":    withOption(udp4, 1, 7, 7, 4, 0, 0, 0, 0, 129, 2, 131, 3, 4),
		"source route in the last byte": withOption(udp4, 1, 1, 1, 131),
		"source route of a fragment":    edit(withOption(udp4, 131, 7, 4, 203, 0, 113, 1), func(ip []byte) { be16(ip[6:], 100) }),
		"option of 0 bytes":             withOption(udp4, 7, 0, 4, 0),
		"option of 1 byte":              withOption(udp4, 7, 1, 4, 0),
		"option beyond the header":      withOption(udp4, 1, 7, 4, 0),
		"option cut after its kind":     withOption(udp4, 1, 1, 1, 7),
		"nine extension headers":        withExt(tcp6, 60, 60, 60, 60, 60, 60, 60, 60, 60),
		"extension beyond the packet":   edit(withExt(tcp6, 60), func(ip []byte) { ip[41] = 200 }),
		"extension of 7 bytes":          truncate(withExt(tcp6, 60), 14+40+7),
		"extension and no header":       truncate(withExt(tcp6, 60), 14+40+16),
		"source route":                  edit(withExt(tcp6, 43), func(ip []byte) { ip[43] = 1 }),
		"fragment in a fragment":        firstFragment6(firstFragment6(tcp6)),
	} {
		f := v4
		if frame[14]>>4 == 6 {
			f = v6
		}
		for dir := range 2 {
			r.load(policy{onMiss: deny2, rules: [2][]rule{{allPorts(f.all)}, {allPorts(f.all)}}})
			if got := r.run(dir, frame).String(); got != "deny malformed" {
				t.Errorf("%s: got %s", name, got)
			}
			r.load(policy{onMiss: [2]uint32{allowed, allowed}})
			if got := r.run(dir, frame).String(); got != "allow malformed" {
				t.Errorf("%s without policy: got %s", name, got)
			}
			r.slots.At(slotID).Flags = bpf.SlotUsed
			r.want("deny malformed", dir, frame)
		}
	}
}

// Ports are where the header says, and nowhere else.
func TestPortsBehindOptions(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {{f.host, ranges(6, 80, 80)}, portRange(f.all, 17, 53, 53)}}})
		for _, port := range []int{80, 81} {
			want := map[int]string{80: "allow policy", 81: "deny policy"}[port]
			frame := testenv.TCP(at(f.pod, 41000), at(f.peer, port), syn, make([]byte, 8)...)
			var frames [][]byte
			if f.index == bpf.V4 {
				for n := 4; n <= 40; n += 4 {
					// The options look like the ports of what would be allowed.
					forged := withOptions(frame, n)
					copy(forged[34:], []byte{0, 0x28, 0, 80}) // behind the end of the list
					frames = append(frames, withOptions(frame, n), forged)
				}
			} else {
				for _, kinds := range [][]byte{{0}, {60}, {43}, {51}, {44}, {0, 60, 43, 44, 51, 60}, {0, 60, 43, 44, 51, 60, 60, 60}} {
					frames = append(frames, withExt(frame, kinds...))
				}
			}
			for i, frame := range frames {
				r.clear()
				if got := r.run(bpf.Egress, frame).String(); got != want {
					t.Errorf("port %d, frame %d: got %s, want %s", port, i, got, want)
				}
				// Behind a priority tag as well.
				r.clear()
				if got := r.run(bpf.Egress, withTag(frame, 0x8100, 0)).String(); got != want {
					t.Errorf("port %d, frame %d tagged: got %s, want %s", port, i, got, want)
				}
			}
		}
	})
}

// What is no extension header is the protocol, and its bytes are not walked.
func TestUnknownNextHeader(t *testing.T) {
	r := newRig(t)
	tcp := testenv.TCP(at(v6.pod, 41000), at(v6.peer, 80), syn)
	r.load(policy{onMiss: deny2, rules: [2][]rule{1: {{v6.host, ranges(6, 80, 80)}}}})
	for _, kind := range []byte{50, 59, 135, 139, 140, 253, 4, 41, 47} {
		r.want("deny policy", bpf.Egress, withExt(tcp, kind))
	}
	r.load(policy{onMiss: deny2, rules: [2][]rule{1: {portRange(v6.host, 50, 0, 0)}}})
	r.want("allow policy", bpf.Egress, withExt(tcp, 50))
	r.want("allow flow", bpf.Ingress, testenv.Raw(addrOf(at(v6.peer, 1)), addrOf(at(v6.pod, 1)), 50, make([]byte, 20)))
	r.want("deny policy", bpf.Egress, withExt(tcp, 135))
}

func TestAntispoof(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: [2]uint32{allowed, allowed}})
		g := f
		g.pod = f.pod2
		r.want("allow policy", bpf.Egress, g.open(bpf.Egress, f.peer, 80))
		r.pods.At(podIfindex).Flags = bpf.PodAntispoof
		r.want("deny spoof", bpf.Egress, g.open(bpf.Egress, f.peer, 80))
		r.want("deny spoof", bpf.Egress, g.udp(bpf.Egress, 1, f.peer, 80))
		r.want("allow policy", bpf.Egress, f.open(bpf.Egress, f.peer, 80))
		r.want("allow policy", bpf.Ingress, g.open(bpf.Ingress, f.peer, 80))
		g.pod = map[int]string{bpf.V4: "0.0.0.0", bpf.V6: "::"}[f.index]
		r.want("deny spoof", bpf.Egress, g.udp(bpf.Egress, 1, f.peer, 80))
		// A pod without an address of the family has none to send from.
		r.pods.At(podIfindex).Addr4, r.pods.At(podIfindex).Addr6 = 0, [16]byte{}
		r.want("deny spoof", bpf.Egress, g.udp(bpf.Egress, 1, f.peer, 80))
		r.want("deny spoof", bpf.Egress, f.udp(bpf.Egress, 1, f.peer, 80))
		if f.index == bpf.V6 {
			g.pod = "fe80::11"
			r.want("allow policy", bpf.Egress, g.open(bpf.Egress, "fe80::1", 80))
		}
	})
}
