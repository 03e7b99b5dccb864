package bpf_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

var (
	fuzzPackets = flag.Int("packets", 20000, "packets that TestAgainstOracle sends")
	fuzzSeed    = flag.Uint64("seed", 0, "seed of TestAgainstOracle, 0 = by the clock")
)

// Broken packets get the verdict of a plain second implementation, on a node that has no routes.
func TestAgainstOracle(t *testing.T) {
	r := newRig(t)
	seed := *fuzzSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d -packets %d", seed, *fuzzPackets)
	node := testenv.New(t)
	node.Sysctl(t, "net.ipv6.conf.lo.forwarding", "1")
	seen := map[string]int{}
	node.MustDo(t, func() error { return r.fuzz(rand.New(rand.NewPCG(seed, 1)), seen) })
	for _, must := range []string{
		"allow policy", "deny policy", "allow reply", "deny malformed", "allow malformed", "deny ethertype",
		"allow ethertype", "deny fragment", "allow link", "deny spoof", "allow flow",
	} {
		if seen[must] == 0 {
			t.Errorf("no packet got %s: %v", must, seen)
		}
	}
}

// fuzz counts the verdicts that it has seen.
func (r *rig) fuzz(rnd *rand.Rand, seen map[string]int) error {
	own := [2]netip.Addr{netip.MustParseAddr(v4.pod), netip.MustParseAddr(v6.pod)}
	seeds := seedFrames()
	var p policy
	antispoof := false
	for i := range *fuzzPackets {
		if i%200 == 0 {
			p = randomPolicy(rnd)
			r.load(p)
			antispoof = rnd.IntN(3) == 0
			r.pods.At(podIfindex).Flags = map[bool]uint32{true: bpf.PodAntispoof}[antispoof]
		}
		dir := rnd.IntN(2)
		frame := mutate(rnd, seeds[dir][rnd.IntN(len(seeds[dir]))])
		want := p.verdict(dir, frame, antispoof, own)
		got, err := r.quick(dir, frame)
		if errors.Is(err, syscall.EINVAL) {
			continue // test-run makes no packet of it, or is too old to take it for another pod's
		}
		if err != nil {
			return err
		}
		if got != want.allow {
			return fmt.Errorf("packet %d, %s, antispoof %v: allow is %v, want %v\nframe % x\npolicy %+v", i, dirNames[dir], antispoof, got, want, frame, p)
		}
		seen[want.String()]++
	}
	return nil
}

// quick runs a frame and forgets the flow that it made.
func (r *rig) quick(dir int, frame []byte) (bool, error) {
	prog := []*ebpf.Program{r.ToPod, r.FromPod}[dir]
	from := []uint32{otherIfindex, 0}[dir]
	code, err := prog.Run(&ebpf.RunOptions{Data: frame, Context: &skbContext{Ifindex: podIfindex, IngressIfindex: from}, Repeat: 1})
	if err != nil {
		return false, err
	}
	r.clear()
	return code == next, nil
}

func randomPolicy(rnd *rand.Rand) policy {
	p := policy{forceTrie: rnd.IntN(2) == 0}
	results := []uint32{denied, allowed, allowed | 1}
	if rnd.IntN(8) == 0 { // none
		p.onMiss = [2]uint32{allowed, allowed}
		return p
	}
	for dir := range 2 {
		p.onMiss[dir] = results[rnd.IntN(2)]
		var prefixes []string
		for range rnd.IntN(4) {
			prefixes = append(prefixes, []string{v4.host, v6.host, v4.all, v6.all, "198.18.0.0/15", "fd00::/9", "10.0.0.0/8"}[rnd.IntN(7)])
		}
		slices.Sort(prefixes)
		for _, prefix := range slices.Compact(prefixes) {
			ru := rule{prefix, []point{from(0, results[rnd.IntN(3)])}}
			for _, start := range []uint32{key(1, 0), key(2, 0), key(6, 0), key(6, 80), key(6, 81), key(7, 0), key(17, 53), key(17, 54), key(58, 0), key(59, 0), key(132, 0), key(133, 0)} {
				if rnd.IntN(2) == 0 {
					ru.ports = append(ru.ports, from(start, results[rnd.IntN(3)]))
				}
			}
			p.rules[dir] = append(p.rules[dir], ru)
		}
	}
	return p
}

// seedFrames are sound packets of all kinds, by direction.
func seedFrames() (seeds [2][][]byte) {
	for dir := range 2 {
		for _, f := range families {
			for _, remote := range []string{f.peer, f.other} {
				big := bigUDP(f, dir, 41000, remote, 53)
				tcp := f.tcp(dir, 41000, remote, 80, syn)
				seeds[dir] = append(seeds[dir], tcp, f.tcp(dir, 80, remote, 41000, ack), f.tcp(dir, 80, remote, 41000, synAck),
					f.udp(dir, 41000, remote, 53), probeFrame(f, dir, remote, 132, 80), f.ping(dir, remote, false, 7), probeFrame(f, dir, remote, 47, 0),
					testenv.TooBig(remote, f.pod, 1300, tcp), withTag(tcp, 0x8100, 0), withTag(withTag(tcp, 0x8100, 0), 0x88a8, 0))
				seeds[dir] = append(seeds[dir], fragments(big, 5, 1480)...)
				seeds[dir] = append(seeds[dir], fragments(tcp, 5, 16)...)
				if f.index == bpf.V4 {
					seeds[dir] = append(seeds[dir], withOptions(tcp, 4), withOptions(tcp, 40), withType(tcp, 0x0806),
						withOption(tcp, 7, 7, 4, 0, 0, 0, 0, 68, 8, 5, 0, 0, 0, 0, 0), withOption(tcp, 1, 131, 7, 4, 203, 0, 113, 1))
					continue
				}
				seeds[dir] = append(seeds[dir], withExt(tcp, 0), withExt(tcp, 60, 44, 51), withExt(tcp, 43, 60, 60), firstFragment6(tcp),
					testenv.ICMP6(addrOf(at(f.pod, 1)), addrOf(at(remote, 1)), 135, 0, make([]byte, 20)),
					testenv.ICMP6(netip.MustParseAddr("fe80::11"), netip.MustParseAddr("ff02::1"), 136, 0, make([]byte, 20)),
					edit(testenv.ICMP6(netip.MustParseAddr("::"), netip.MustParseAddr("ff02::16"), 143, 0, make([]byte, 4)), func(ip []byte) { ip[7] = 1 }))
			}
		}
	}
	return seeds
}

// mutate changes a few bytes, most of them in headers, or the length.
func mutate(rnd *rand.Rand, frame []byte) []byte {
	frame = slices.Clone(frame)
	for range rnd.IntN(4) {
		at := 12 + rnd.IntN(min(len(frame)-12, []int{12, 60, 110}[rnd.IntN(3)]))
		switch rnd.IntN(6) {
		case 0:
			frame[at] = byte(rnd.Uint32())
		case 1:
			frame[at] ^= 1 << rnd.IntN(8)
		case 2:
			frame[at] = []byte{0, 1, 4, 6, 17, 43, 44, 51, 58, 59, 60, 132, 255}[rnd.IntN(13)]
		case 3:
			frame[at] += byte(rnd.IntN(5)) - 2
		case 4:
			frame = frame[:max(14, len(frame)-rnd.IntN(60))]
		case 5: // the IP length that fits, or nearly
			if len(frame) > 60 {
				be16(frame[16:], len(frame)-14+rnd.IntN(3)-1)
				be16(frame[18:], len(frame)-54+rnd.IntN(3)-1)
			}
		}
		if len(frame) < 20 {
			break
		}
	}
	return frame
}
