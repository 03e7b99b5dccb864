package bpf_test

import (
	"fmt"
	"testing"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

var deny2 = [2]uint32{denied, denied}

// Every case runs in both directions: the rules and the packet's direction are turned together.
func TestRules(t *testing.T) {
	type probe struct {
		remote string
		proto  int
		port   int
		want   bool
	}
	cases := []struct {
		name   string
		fam    family
		rules  []rule
		miss   uint32
		probes []probe
	}{
		{"no rules deny", v4, nil, denied, []probe{{v4.peer, 6, 80, false}, {v4.peer, 17, 53, false}}},
		{"no rules allow", v4, nil, allowed, []probe{{v4.peer, 6, 80, true}, {v4.peer, 17, 53, true}}},
		{"host prefix and its neighbours", v4, []rule{allPorts("198.18.0.7/32")}, denied, []probe{
			{"198.18.0.7", 6, 80, true}, {"198.18.0.6", 6, 80, false}, {"198.18.0.8", 6, 80, false},
		}},
		{"prefix of 31 bits", v4, []rule{allPorts("198.18.0.6/31")}, denied, []probe{
			{"198.18.0.6", 6, 80, true}, {"198.18.0.7", 6, 80, true}, {"198.18.0.5", 6, 80, false}, {"198.18.0.8", 6, 80, false},
		}},
		{"prefix of 1 bit", v4, []rule{allPorts("128.0.0.0/1")}, denied, []probe{
			{"128.0.0.1", 6, 80, true}, {"198.18.0.7", 6, 80, true}, {"127.255.255.254", 6, 80, false},
		}},
		{"whole family", v4, []rule{allPorts("0.0.0.0/0")}, denied, []probe{{"1.2.3.4", 6, 80, true}, {"255.255.255.254", 17, 80, true}}},
		{"longest prefix decides alone", v4, []rule{allPorts("0.0.0.0/0"), denyAll("198.18.0.0/16"), allPorts("198.18.0.7/32")}, denied, []probe{
			{"198.18.0.7", 6, 80, true}, {"198.18.0.8", 6, 80, false}, {"198.19.0.1", 6, 80, true},
		}},
		{"more lengths than are probed", v4, []rule{
			allPorts("0.0.0.0/0"), denyAll("198.0.0.0/8"), allPorts("198.18.0.0/16"), denyAll("198.18.0.0/24"),
			allPorts("198.18.0.0/28"), denyAll("198.18.0.7/32"),
		}, denied, []probe{
			{"198.18.0.7", 6, 80, false}, {"198.18.0.8", 6, 80, true}, {"198.18.0.16", 6, 80, false},
			{"198.18.1.1", 6, 80, true}, {"198.1.1.1", 6, 80, false}, {"1.1.1.1", 6, 80, true},
		}},
		{"one port", v4, []rule{portRange("198.18.0.7/32", 6, 80, 80)}, allowed, []probe{
			{v4.peer, 6, 80, true}, {v4.peer, 6, 79, false}, {v4.peer, 6, 81, false}, {v4.peer, 17, 80, false}, {v4.other, 6, 81, true},
		}},
		{"first and last port", v4, []rule{{"198.18.0.7/32", ranges(6, 0, 0, 65535, 65535)}}, denied, []probe{
			{v4.peer, 6, 0, true}, {v4.peer, 6, 1, false}, {v4.peer, 6, 65534, false}, {v4.peer, 6, 65535, true}, {v4.peer, 17, 0, false},
		}},
		{"a whole protocol", v4, []rule{portRange("198.18.0.7/32", 17, 0, 65535)}, denied, []probe{
			{v4.peer, 17, 0, true}, {v4.peer, 17, 65535, true}, {v4.peer, 6, 65535, false}, {v4.peer, 132, 7, false},
		}},
		{"sctp", v4, []rule{portRange("198.18.0.7/32", 132, 3868, 3868)}, denied, []probe{
			{v4.peer, 132, 3868, true}, {v4.peer, 132, 3869, false}, {v4.peer, 6, 3868, false},
		}},
		{"protocol without ports", v4, []rule{portRange("198.18.0.7/32", 47, 0, 0)}, denied, []probe{{v4.peer, 47, 0, true}, {v4.peer, 50, 0, false}}},
		{"host prefix and its neighbours", v6, []rule{allPorts("fd00:7::7/128")}, denied, []probe{
			{"fd00:7::7", 6, 80, true}, {"fd00:7::6", 6, 80, false}, {"fd00:7:0:1::7", 6, 80, false}, {"fe00:7::7", 6, 80, false},
		}},
		{"prefixes around the middle", v6, []rule{allPorts("fd00:7::/64"), denyAll("fd00:7:0:0:8000::/65"), allPorts("fd00:8::/63")}, denied, []probe{
			{"fd00:7::1", 6, 80, true}, {"fd00:7:0:0:8000::1", 6, 80, false}, {"fd00:7:0:1::1", 6, 80, false},
			{"fd00:8:0:1::1", 6, 80, true}, {"fd00:8:0:2::1", 6, 80, false},
		}},
		{"prefixes of 127 and 1 bits and none", v6, []rule{allPorts("::/0"), denyAll("8000::/1"), allPorts("fd00:7::6/127")}, denied, []probe{
			{"fd00:7::6", 6, 80, true}, {"fd00:7::7", 6, 80, true}, {"fd00:7::8", 6, 80, false}, {"2001:db8::1", 6, 80, true},
		}},
		{"more lengths than are probed", v6, []rule{
			allPorts("::/0"), denyAll("fd00::/8"), allPorts("fd00:7::/32"), denyAll("fd00:7::/48"), allPorts("fd00:7::/64"), denyAll("fd00:7::7/128"),
		}, denied, []probe{
			{"fd00:7::7", 6, 80, false}, {"fd00:7::8", 6, 80, true}, {"fd00:7:0:1::1", 6, 80, false}, {"fd00:7:1::1", 6, 80, true}, {"2001::1", 6, 80, true},
		}},
		{"v4-mapped address is IPv6", v6, []rule{allPorts("198.18.0.7/32")}, denied, []probe{{"::ffff:198.18.0.7", 6, 80, false}}},
	}
	r := newRig(t)
	for _, c := range cases {
		for dir := range 2 {
			for _, trie := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%s/trie=%v", c.fam.name, c.name, dirNames[dir], trie), func(t *testing.T) {
					r := &rig{t, r.Objects, r.pods, r.slots, r.nodes}
					p := policy{onMiss: [2]uint32{denied, denied}, forceTrie: trie}
					p.rules[dir], p.onMiss[dir] = c.rules, c.miss
					r.load(p)
					for _, pr := range c.probes {
						r.clear()
						frame := probeFrame(c.fam, dir, pr.remote, pr.proto, pr.port)
						if got := r.run(dir, frame); got.allow != pr.want || got.reason != bpf.ReasonPolicy {
							t.Errorf("%s protocol %d port %d: got %v, want %v", pr.remote, pr.proto, pr.port, got, pr.want)
						}
					}
				})
			}
		}
	}
}

// probeFrame makes a packet that opens a flow.
func probeFrame(f family, dir int, remote string, proto, port int) []byte {
	src, dst := at(f.pod, 41000), at(remote, port)
	if dir == bpf.Ingress {
		src, dst = at(remote, 41000), at(f.pod, port)
	}
	switch proto {
	case 6:
		return testenv.TCP(src, dst, testenv.SYN)
	case 17:
		return testenv.UDP(src, dst)
	case 132:
		return testenv.SCTP(src, dst)
	}
	return testenv.Raw(addrOf(src), addrOf(dst), uint8(proto), make([]byte, 24))
}

// A set is a step function; every start of a step and its neighbours are asked for.
func TestPortSets(t *testing.T) {
	r := newRig(t)
	for _, steps := range []int{2, 3, 4, 31, 32, 33, 34, 63, 64, 65, 66, 200, 1000, 1025} {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			r := &rig{t, r.Objects, r.pods, r.slots, r.nodes}
			set := []point{from(0, denied)}
			for i := 1; i < steps; i++ {
				res := uint32(denied)
				if i%2 == 1 {
					res = allowed
				}
				set = append(set, from(key(6, 7*i), res))
			}
			// A second peer's set in front shows that the first block counts.
			r.load(policy{onMiss: deny2, rules: [2][]rule{1: {{"198.18.99.9/32", ranges(6, 1, 1, 5, 5)}, {"198.18.0.7/32", set}}}})
			for i := 1; i < steps; i += 1 + steps/100 {
				for port, want := range map[int]bool{7 * i: i%2 == 1, 7*i - 1: i%2 == 0, 7*i + 6: i%2 == 1} {
					if got := r.run(bpf.Egress, v4.open(bpf.Egress, v4.peer, port)); got.allow != want {
						t.Errorf("step %d port %d: got %v, want %v", i, port, got, want)
					}
				}
			}
		})
	}
}

// The largest set there is: every port of all three protocols is a step of its own.
func TestLargestPortSet(t *testing.T) {
	r := newRig(t)
	set := []point{from(0, denied)}
	for _, proto := range []int{6, 17, 132} {
		for port := range 65536 {
			res := uint32(denied + 7)
			if port%2 == 1 {
				res = allowed
			}
			set = append(set, from(key(proto, port), res))
		}
		set = append(set, from(key(proto+1, 0), denied))
	}
	r.load(policy{onMiss: deny2, rules: [2][]rule{1: {{v4.host, set}}}})
	for _, proto := range []int{6, 17, 132} {
		for _, port := range []int{0, 1, 2, 31, 32, 33, 255, 256, 32767, 32768, 40001, 65534, 65535} {
			got := r.run(bpf.Egress, probeFrame(v4, bpf.Egress, v4.peer, proto, port))
			if got.allow != (port%2 == 1) {
				t.Errorf("protocol %d port %d: got %v", proto, port, got)
			}
		}
	}
	r.want("deny policy", bpf.Egress, probeFrame(v4, bpf.Egress, v4.peer, 47, 0))
}

// Policy of one direction says nothing about the other.
func TestDirectionsAreApart(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: [2]uint32{denied, allowed}})
		r.want("deny policy", bpf.Ingress, f.open(bpf.Ingress, f.peer, 80))
		r.want("allow policy", bpf.Egress, f.open(bpf.Egress, f.peer, 80))
		r.load(policy{onMiss: [2]uint32{allowed, denied}})
		r.want("allow policy", bpf.Ingress, f.open(bpf.Ingress, f.peer, 80))
		r.want("deny policy", bpf.Egress, f.open(bpf.Egress, f.peer, 80))
	})
}

// What a slot says it has but has not is no permission.
func TestIncomplete(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		syn := f.open(bpf.Egress, f.peer, 80)
		s := r.slots.At(slotID)

		r.load(policy{onMiss: [2]uint32{allowed, allowed}})
		s.Flags = bpf.SlotUsed
		r.want("deny incomplete", bpf.Egress, syn)
		r.want("deny incomplete", bpf.Ingress, f.udp(bpf.Ingress, 1, f.peer, 2))

		r.load(policy{onMiss: [2]uint32{allowed, allowed}})
		s.Lens[bpf.Egress][f.index] = bpf.LensWord(24)
		r.want("deny incomplete", bpf.Egress, syn)
		r.want("allow policy", bpf.Ingress, f.open(bpf.Ingress, f.peer, 80))

		r.load(policy{onMiss: [2]uint32{allowed, allowed}})
		s.Trie[bpf.Egress][f.index] = 1
		r.want("deny incomplete", bpf.Egress, syn)

		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {{f.host, ranges(6, 80, 80, 90, 90)}}}})
		r.must(r.Maps["portsets"].Delete(uint32(slotID)))
		r.want("deny incomplete", bpf.Egress, syn)

		r.bind(bpf.MaxSlots)
		r.want("deny incomplete", bpf.Egress, syn)
		r.bind(99)
		r.want("deny incomplete", bpf.Egress, syn)
	})
}

func TestDefaultSlots(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.bind(bpf.SlotDefaultAllow)
		r.want("allow policy", bpf.Egress, f.open(bpf.Egress, f.peer, 80))
		r.want("allow policy", bpf.Ingress, f.open(bpf.Ingress, f.peer, 80))
		r.bind(bpf.SlotDefaultDeny)
		r.want("deny policy", bpf.Egress, f.open(bpf.Egress, f.peer, 80))
		r.want("deny policy", bpf.Ingress, f.open(bpf.Ingress, f.peer, 80))
	})
}

func TestPodState(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		syn := f.open(bpf.Egress, f.peer, 80)
		r.bind(bpf.SlotDefaultAllow)
		own := *r.pods.At(podIfindex)

		*r.pods.At(podIfindex) = bpf.PodState{}
		r.want("deny no-state", bpf.Egress, syn)
		r.want("deny no-state", bpf.Ingress, f.open(bpf.Ingress, f.peer, 80))

		// Another interface sits in the element: the hash behind it is asked.
		r.pods.At(podIfindex).Ifindex = podIfindex + bpf.PodStateSize
		r.want("deny no-state", bpf.Egress, syn)
		r.must(r.Maps["pod_state_hash"].Put(uint32(podIfindex), own))
		r.want("allow policy", bpf.Egress, syn)
	})
}
