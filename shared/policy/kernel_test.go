package policy_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/rules"
	"github.com/latch-cni/latch/shared/testenv"
)

// The kernel gives the verdict of the compiled rules, which is the oracle's, at the addresses and ports
// where one can change: the whole way from the API's words to the programs, for random policies with
// tiers.
func TestKernelEqualsOracle(t *testing.T) {
	testenv.RequireRoot(t)
	k := newKernel(t)
	base, rounds, limit := policy.Seed(t), 60, 400
	if testing.Short() {
		rounds = 10
	}
	probed := 0
	for round := range rounds {
		r := rand.New(rand.NewPCG(base, uint64(1000+round)))
		in := policy.ChooseInput(r)
		compiled := policy.Compile(in)
		for _, d := range policy.Directions {
			k.bind(compiled) // without the flows of the other direction, whose replies these would be
			all := policy.ProbesOf(in, d)
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for _, p := range all[:min(limit, len(all))] {
				addr, proto, port := p.Unpack()
				frame, ok := packet(d, addr, proto, port)
				if !ok {
					continue
				}
				probed++
				want, tier := policy.Oracle(in, d, addr, proto, port)
				said := compiled.Lookup(d, addr, proto, port).Verdict
				if got := k.run(d, frame); got != want || said != want {
					t.Fatalf("POLICY_SEED=%d round %d: %v %v %d/%d: kernel %v, rules %v, oracle %v (%v)\n%s\n%+v",
						base, round, d, addr, proto, port, got, said, want, tier, policy.Explain(in, d, addr, proto, port), in)
				}
			}
		}
	}
	if probed < 1000 {
		t.Fatalf("only %d packets were judged", probed)
	}
	t.Logf("%d packets judged", probed)
}

const (
	slot    = 9
	ifindex = 1 // loopback: a test-run wants a device of its own namespace
)

var pod4, pod6 = netip.MustParseAddr("172.31.0.9"), netip.MustParseAddr("fdff::9")

// kernel is the loaded programs with one pod.
type kernel struct {
	t      *testing.T
	progs  map[policy.Direction]*ebpf.Program
	pods   *bpf.Array[bpf.PodState]
	slots  *bpf.Array[bpf.Slot]
	tables *rules.Tables
}

func newKernel(t *testing.T) *kernel {
	t.Helper()
	o, err := bpf.Load(bpf.Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	k := &kernel{t: t, progs: map[policy.Direction]*ebpf.Program{policy.Ingress: o.ToPod, policy.Egress: o.FromPod}}
	if k.pods, err = bpf.MapArray[bpf.PodState](o.Maps["pod_state"]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.pods.Close() })
	if k.slots, err = bpf.MapArray[bpf.Slot](o.Maps["slots"]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.slots.Close() })
	if k.tables, err = rules.NewTables(o.Maps, k.slots); err != nil {
		t.Fatal(err)
	}
	return k
}

// bind puts rules in force for a pod that has no flows.
func (k *kernel) bind(r *policy.Rules) {
	k.t.Helper()
	if _, err := k.tables.Fill(slot, r); err != nil {
		k.t.Fatal(err)
	}
	s := k.slots.At(slot)
	s.Generation++
	atomic.StoreUint32(&s.Flags, bpf.SlotUsed|bpf.SlotComplete)
	p := k.pods.At(ifindex)
	*p = bpf.PodState{Ifindex: ifindex, Slot: slot, Pod: p.Pod + 1, Addr4: bpf.Addr4(pod4), Addr6: pod6.As16()}
}

// context is struct __sk_buff of a packet that came in on another device.
type context struct {
	_              [9]uint32
	IngressIfindex uint32
	Ifindex        uint32
	_              [44]uint32
}

func (k *kernel) run(d policy.Direction, frame []byte) policy.Verdict {
	k.t.Helper()
	ret, err := k.progs[d].Run(&ebpf.RunOptions{Data: frame, Context: &context{IngressIfindex: 77, Ifindex: ifindex}})
	if err != nil {
		k.t.Fatal(err)
	}
	switch ret {
	case 0xffffffff:
		return policy.Allow
	case 2:
		return policy.Deny
	}
	k.t.Fatalf("program returned %d", ret)
	return policy.Deny
}

// packet makes a packet that begins a flow with a peer. It reports false for what cannot be sent: a port
// of a protocol that has none, and an IPv6 extension header.
func packet(d policy.Direction, peer netip.Addr, proto policy.Protocol, port uint16) ([]byte, bool) {
	pod := pod4
	if peer.Is6() {
		pod = pod6
	}
	src, dst := peer, pod
	if d == policy.Egress {
		src, dst = pod, peer
	}
	const from = 40123 // no port of the random policies
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), port)
	var l4 []byte
	switch proto {
	case policy.TCP:
		l4 = append(ports, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0)
	case policy.UDP:
		l4 = append(ports, 0, 8, 0, 0)
	case policy.SCTP:
		l4 = append(ports, 0, 0, 0, 0, 0, 0, 0, 0)
	default:
		if port != 0 || proto == 0 && peer.Is6() {
			return nil, false
		}
		l4 = []byte{13, 0, 0, 0, 0, 1, 0, 1}
	}
	return testenv.Raw(src, dst, uint8(proto), l4), true
}
