package bpf_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// ping makes an echo request or reply between pod and remote, as seen in direction dir.
func (f family) ping(dir int, remote string, reply bool, id uint16) []byte {
	if dir == bpf.Egress {
		return testenv.Ping(f.pod, remote, reply, id, 1)
	}
	return testenv.Ping(remote, f.pod, reply, id, 1)
}

func TestEcho(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		icmp := f.proto(1, 58)
		for dir := range 2 {
			p := policy{onMiss: deny2}
			p.rules[dir] = []rule{portRange(f.host, icmp, 0, 0)}
			r.load(p)
			r.clear()
			r.want("deny policy", 1-dir, f.ping(1-dir, f.peer, false, 9))
			r.want("deny policy", dir, f.ping(dir, f.other, false, 9))
			r.want("allow policy", dir, f.ping(dir, f.peer, false, 9))
			r.want("allow flow", dir, f.ping(dir, f.peer, false, 9))
			r.want("allow flow", 1-dir, f.ping(1-dir, f.peer, true, 9))
			r.want("deny policy", 1-dir, f.ping(1-dir, f.peer, true, 10))
			// A request is no answer, whatever its id, and leaves the flow alone.
			r.want("deny policy", 1-dir, f.ping(1-dir, f.peer, false, 9))
			r.want("allow flow", 1-dir, f.ping(1-dir, f.peer, true, 9))
			p.rules[1-dir] = p.rules[dir]
			r.load(p)
			r.want("allow policy", 1-dir, f.ping(1-dir, f.peer, false, 9))
			if _, v := r.flow(f, icmp, 9, f.peer, 9); v == nil || v.Dir != uint8(dir) {
				t.Errorf("flow is %+v", v)
			}
		}
		// Rules with ports are not about ICMP.
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {portRange(f.all, 6, 0, 65535)}}})
		r.clear()
		r.want("deny policy", bpf.Egress, f.ping(bpf.Egress, f.peer, false, 9))
	})
}

// An error passes if it quotes a packet of a live flow that the receiver of the error has sent.
func TestErrors(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		router := f.other
		for proto, quoted := range map[string]func(dir int) []byte{
			"tcp":  func(dir int) []byte { return f.tcp(dir, 41000, f.peer, 80, ack) },
			"udp":  func(dir int) []byte { return f.udp(dir, 41000, f.peer, 80) },
			"echo": func(dir int) []byte { return f.ping(dir, f.peer, dir == bpf.Ingress, 5) },
		} {
			r.clear()
			r.load(policy{onMiss: deny2, rules: [2][]rule{1: {allPorts(f.host)}}})
			toPod := testenv.TooBig(router, f.pod, 1300, quoted(bpf.Egress))
			fromPod := testenv.Unreachable(f.pod, f.peer, quoted(bpf.Ingress))
			r.want("deny policy", bpf.Ingress, toPod)
			r.want("allow policy", bpf.Egress, fromPod) // by the rule, not by the flow
			if n := r.flows(f); n != 0 {
				t.Errorf("errors left %d flows", n)
			}
			r.want("allow policy", bpf.Egress, quoted(bpf.Egress))
			n := r.flows(f)
			r.want("allow related", bpf.Ingress, toPod)
			r.want("allow related", bpf.Ingress, toPod)
			r.want("allow related", bpf.Egress, fromPod)

			for name, frame := range map[string][]byte{
				"quotes what the peer sent":      testenv.TooBig(router, f.pod, 1300, quoted(bpf.Ingress)),
				"quotes another address's flow":  testenv.TooBig(router, f.pod2, 1300, quoted(bpf.Egress)),
				"quotes another flow":            testenv.TooBig(router, f.pod, 1300, f.udp(bpf.Egress, 41000, f.peer, 81)),
				"quotes another peer":            testenv.TooBig(router, f.pod, 1300, f.tcp(bpf.Egress, 41000, f.other, 80, ack)),
				"quotes nothing":                 truncate(toPod, 14+[]int{20, 40}[f.index]+8),
				"quotes an address and no ports": truncate(toPod, 14+2*[]int{20, 40}[f.index]+8+2),
			} {
				if got := r.run(bpf.Ingress, frame).String(); got != "deny policy" {
					t.Errorf("%s, %s: got %s", proto, name, got)
				}
			}
			// Redirects, and what is no error, never belong to a flow.
			redirect := slices.Clone(toPod)
			redirect[14+[]int{20, 40}[f.index]] = byte(f.proto(5, 137))
			r.want("deny policy", bpf.Ingress, redirect)

			// An error is no sign of life, and none saves a flow that is cut.
			if r.flows(f) != n {
				t.Errorf("%d flows, had %d", r.flows(f), n)
			}
			r.load(policy{onMiss: deny2})
			r.age(f)
			r.want("deny cut", bpf.Ingress, toPod)
			r.want("deny cut", bpf.Egress, fromPod)
		}
	})
}

// truncate cuts a frame and sets the lengths of its IP header.
func truncate(frame []byte, n int) []byte {
	frame = slices.Clone(frame[:n])
	if frame[14]>>4 == 4 {
		be16(frame[16:], n-14)
	} else {
		be16(frame[18:], n-54)
	}
	return frame
}

// The quote may be cut after the ports, be long, or carry options and extension headers.
func TestQuotes(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {allPorts(f.host)}}})
		r.want("allow policy", bpf.Egress, f.tcp(bpf.Egress, 41000, f.peer, 80, syn))
		quoted := testenv.TCP(at(f.pod, 41000), at(f.peer, 80), ack, make([]byte, 600)...)
		full := testenv.TooBig(f.other, f.pod, 1300, quoted)
		base := 14 + 2*[]int{20, 40}[f.index] + 8
		for _, n := range []int{base + 4, base + 8} {
			r.want("allow related", bpf.Ingress, truncate(full, n))
		}
		r.want("deny policy", bpf.Ingress, truncate(full, base+3))
		if f.index == bpf.V4 {
			r.want("allow related", bpf.Ingress, testenv.TooBig(f.other, f.pod, 1300, withOptions(quoted, 4)))
			// An error with options itself.
			r.want("allow related", bpf.Ingress, withOptions(full, 8))
			return
		}
		r.want("allow related", bpf.Ingress, full)
		for _, headers := range [][]byte{{60}, {0, 60}, {44}, {51}, {43}} {
			r.want("allow related", bpf.Ingress, testenv.TooBig(f.other, f.pod, 1300, withExt(quoted, headers...)))
			r.want("allow related", bpf.Ingress, withExt(full, headers...))
		}
	})
}

// withOptions puts n bytes of options (no-operation) into an IPv4 header.
func withOptions(frame []byte, n int) []byte {
	frame = slices.Insert(slices.Clone(frame), 34, slices.Repeat([]byte{1}, n)...)
	frame[14] += byte(n / 4)
	be16(frame[16:], len(frame)-14)
	return frame
}

// withOption puts options into an IPv4 header.
func withOption(frame []byte, option ...byte) []byte {
	out := withOptions(frame, (len(option)+3)&^3)
	copy(out[34+copy(out[34:], option):], []byte{0, 0, 0}[:-len(option)&3])
	return out
}

// withExt puts extension headers of the given kinds behind an IPv6 header.
func withExt(frame []byte, kinds ...byte) []byte {
	frame = slices.Clone(frame)
	for _, kind := range slices.Backward(kinds) {
		ext := []byte{frame[20], 0, 0, 0, 0, 0, 0, 0}
		switch kind {
		case 51: // authentication header: 24 bytes
			ext = append(ext, make([]byte, 16)...)
			ext[1] = 4
		case 0, 60: // 16 bytes
			ext = append(ext, make([]byte, 8)...)
			ext[1] = 1
		case 44:
			ext[7] = 9
		}
		frame[20] = kind
		frame = slices.Insert(frame, 54, ext...)
	}
	be16(frame[18:], len(frame)-54)
	return frame
}

// discovery is a message of 32 bytes.
func discovery(src, dst string, kind, hops uint8) []byte {
	ip := testenv.IP(netip.MustParseAddr(src), netip.MustParseAddr(dst), layers.IPProtocolICMPv6).(*layers.IPv6)
	ip.HopLimit = hops
	return testenv.Build(ip, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}, gopacket.Payload(make([]byte, 28)))
}

// Discovery on the link always passes, and does not serve to leave it.
func TestDiscovery(t *testing.T) {
	r := newRig(t)
	r.load(policy{onMiss: deny2})
	const (
		router, allNodes, allMLD = "fe80::1", "ff02::1", "ff02::16"
		podLink                  = "fe80::11"
	)
	for _, c := range []struct {
		name string
		dir  int
		want string
		data []byte
	}{
		{"solicitation of the node", bpf.Ingress, "allow link", discovery(router, "ff02::1:ff00:11", 135, 255)},
		{"solicitation by unicast", bpf.Ingress, "allow link", discovery(v6.node, v6.pod, 135, 255)},
		{"advertisement to the node", bpf.Egress, "allow link", discovery(v6.pod, router, 136, 255)},
		{"duplicate address detection", bpf.Egress, "allow link", discovery("::", "ff02::1:ff00:11", 135, 255)},
		{"router solicitation", bpf.Egress, "allow link", discovery(podLink, "ff02::2", 133, 255)},
		{"router advertisement", bpf.Ingress, "allow link", discovery(router, allNodes, 134, 255)},
		{"forwarded solicitation", bpf.Ingress, "deny policy", discovery(v6.other, v6.pod, 135, 254)},
		{"solicitation out into the world", bpf.Egress, "deny policy", discovery(v6.pod, v6.other, 135, 254)},
		{"redirect", bpf.Ingress, "deny policy", discovery(router, v6.pod, 137, 255)},
		{"listener report", bpf.Egress, "allow link", discovery("::", allMLD, 143, 1)},
		{"listener report with router alert", bpf.Egress, "allow link", withExt(discovery(podLink, allMLD, 143, 1), 0)},
		{"listener query", bpf.Ingress, "allow link", discovery(router, allNodes, 130, 1)},
		{"listener report, old", bpf.Egress, "allow link", discovery(podLink, allNodes, 131, 1)},
		{"listener done", bpf.Egress, "allow link", discovery(podLink, "ff02::2", 132, 1)},
		{"listener report that could be forwarded", bpf.Egress, "deny policy", discovery(podLink, allMLD, 143, 2)},
		{"listener report of a global address", bpf.Egress, "deny policy", discovery(v6.pod, allMLD, 143, 1)},
		{"discovery in fragments", bpf.Egress, "deny policy", firstFragment6(discovery(v6.pod, router, 136, 255))},
		{"solicitation in an atomic fragment", bpf.Ingress, "allow link", withExt(discovery(router, v6.pod, 135, 255), 44)},
	} {
		if got := r.run(c.dir, c.data).String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}

	if n := r.flows(v6); n != 0 {
		t.Errorf("%d flows", n)
	}
}

// What a pod sends to a global address is of the link if the node does not forward it: it is for the node, or
// for a neighbour on the bridge on which the node finds the pod, too.
func TestDiscoveryByUnicast(t *testing.T) {
	r := newRig(t)
	r.load(policy{onMiss: deny2})
	const other, beyond, nowhere = "fd00:10:2::2", "fd00:99::9", "fd00:98::8"
	node, peer := testenv.New(t), testenv.New(t)
	for _, dev := range []string{"bridge", "uplink"} {
		testenv.Veth(t, node, dev, peer, dev)
	}
	node.Addr(t, "bridge", "fd00:10:1::1/64")
	node.Addr(t, "uplink", "fd00:10:2::1/64")
	node.Route(t, beyond+"/128", "fd00:10:1::77", "bridge")
	node.Neigh(t, "bridge", "fd00:10:1::98", make([]byte, 6))
	forwarding := func(value string) { node.Sysctl(t, "net.ipv6.conf.lo.forwarding", value) } // of the pod's interface
	allowed := func(frame []byte) (ok bool) {
		t.Helper()
		node.MustDo(t, func() error {
			code, err := r.FromPod.Run(&ebpf.RunOptions{Data: frame, Context: &skbContext{Ifindex: podIfindex}, Repeat: 1})
			ok = code == next
			return err
		})
		return ok
	}
	check := func(what string, toNode, bridged bool, frame []byte) {
		t.Helper()
		for first, want := range map[byte]bool{0: toNode, 2: bridged} { // test-run's device has the hardware address 0
			frame = append([]byte{first, 0, 0, 0, 0, 0}, frame[6:]...)
			if got := allowed(frame); got != want {
				t.Errorf("%s, hardware address %d: allowed %v, want %v", what, first, got, want)
			}
		}
	}

	forwarding("1")
	testenv.Eventually(t, 10*time.Second, func() error { // Linux gives itself addresses once the link is ready
		for _, dst := range []string{"fd00:10:1::1", "fd00:10:2::1"} {
			frame := discovery(v6.pod, dst, 136, 255)
			if copy(frame, make([]byte, 6)); !allowed(frame) {
				return fmt.Errorf("%s is not the node's yet", dst)
			}
		}
		return nil
	})
	for _, kind := range []uint8{135, 136} {
		for _, c := range []struct {
			dst             string
			toNode, bridged bool
		}{
			{"fd00:10:1::1", true, true},
			{"fd00:10:2::1", true, true},
			{"fd00:10:1::98", false, true},
			{"fd00:10:1::99", false, true},
			{other, false, false},
			{beyond, false, false},
			{nowhere, true, true},
			{"ff05::1", false, false},
		} {
			check(c.dst, c.toNode, c.bridged, discovery(v6.pod, c.dst, kind, 255))
			check(c.dst+" from another's address", c.toNode, c.bridged, discovery(beyond, c.dst, kind, 255))
			check(c.dst+", that could be forwarded", false, false, discovery(v6.pod, c.dst, kind, 254))
			check(c.dst+", with an extension header", false, false, withExt(discovery(v6.pod, c.dst, kind, 255), 60))
			long := discovery(v6.pod, c.dst, kind, 255)
			be16(long[18:], 40)
			check(c.dst+", with more in it", false, false, append(long, make([]byte, 8)...))
		}
	}
	check("router solicitation", false, false, discovery(v6.pod, "fd00:10:1::1", 133, 255))
	r.pods.At(podIfindex).Addr6 = [16]byte{}
	check("pod without an address", false, false, discovery(v6.pod, "fd00:10:1::98", 136, 255))
	forwarding("0") // Linux does not say then where the packet goes, and goes by another switch
	check("interface that does not forward", false, false, discovery(v6.pod, "fd00:10:1::1", 136, 255))
	if n := r.flows(v6); n != 0 {
		t.Errorf("%d flows", n)
	}
}

// firstFragment6 makes a packet the first of several fragments.
func firstFragment6(frame []byte) []byte {
	frame = withExt(frame, 44)
	frame[54+3] |= 1
	return frame
}
