package bpf_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

const (
	podIfindex   = 1 // loopback: test-run wants a device of its own namespace
	otherIfindex = 77
	podID        = 7
	slotID       = 5
	next         = 0xffffffff // tc: go on with the next program
	drop         = 2
)

// rig is a pair of loaded programs with one pod, bound to one slot.
type rig struct {
	testing.TB
	*bpf.Objects
	pods  *bpf.Array[bpf.PodState]
	slots *bpf.Array[bpf.Slot]
	nodes *bpf.Array[bpf.Node]
}

func newRig(t testing.TB) *rig {
	t.Helper()
	testenv.RequireRoot(t)
	o, err := bpf.Load(bpf.Sizes{Flows4: 4096, Flows6: 4096, Frags: 4096, Events: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, Objects: o}
	r.pods = mapArray[bpf.PodState](t, o.Maps["pod_state"])
	r.slots = mapArray[bpf.Slot](t, o.Maps["slots"])
	r.nodes = mapArray[bpf.Node](t, o.Maps["node"])
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	r.slots.At(slotID).Generation = 1
	r.bind(slotID)
	return r
}

func mapArray[T any](t testing.TB, m *ebpf.Map) *bpf.Array[T] {
	t.Helper()
	a, err := bpf.MapArray[T](m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// bind binds the pod to a slot.
func (r *rig) bind(slot uint32) {
	*r.pods.At(podIfindex) = bpf.PodState{
		Ifindex: podIfindex, Slot: slot, Pod: podID,
		Addr4: bpf.Addr4(netip.MustParseAddr(v4.pod)), Addr6: netip.MustParseAddr(v6.pod).As16(),
	}
}

func (r *rig) node() *bpf.Node { return r.nodes.At(0) }

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// skbContext is struct __sk_buff as far as test-run takes it.
type skbContext struct {
	_              [9]uint32
	IngressIfindex uint32
	Ifindex        uint32
	_              [44]uint32
}

// verdict is what became of a packet; the reason is "flow" for what is not counted.
type verdict struct {
	allow  bool
	reason bpf.Reason
}

func (v verdict) String() string {
	return map[bool]string{true: "allow", false: "deny"}[v.allow] + " " + v.reason.String()
}

// run sends a frame in a direction, as it comes from another pod or from the pod itself.
func (r *rig) run(dir int, frame []byte) verdict {
	r.Helper()
	if dir == bpf.Egress {
		return r.runFrom(dir, frame, 0) // not looked at; old kernels take no other
	}
	return r.runFrom(dir, frame, otherIfindex)
}

func (r *rig) runFrom(dir int, frame []byte, ingressIfindex uint32) verdict {
	r.Helper()
	before := r.counts()
	prog := r.ToPod
	if dir == bpf.Egress {
		prog = r.FromPod
	}
	code, err := prog.Run(&ebpf.RunOptions{
		Data:    frame,
		Context: &skbContext{Ifindex: podIfindex, IngressIfindex: ingressIfindex},
		Repeat:  1,
	})
	if errors.Is(err, syscall.EINVAL) && ingressIfindex != 0 {
		testenv.RequireKernel(r, 5<<16|15<<8, fmt.Errorf("test-run takes no ingress_ifindex: %w", err))
	}
	r.must(err)
	v := verdict{code == next, bpf.ReasonFlow}
	if code != next && code != drop {
		r.Fatalf("program returned %d", code)
	}
	for k, n := range r.counts() {
		if n == before[k] || k.Slot == bpf.CounterLostEvents {
			continue
		}
		if n != before[k]+1 || v.reason != bpf.ReasonFlow || (k.Allow == 1) != v.allow || int(k.Dir) != dir {
			r.Fatalf("verdict %v, but counted %+v", v, k)
		}
		v.reason = bpf.Reason(k.Reason)
	}
	return v
}

func (r *rig) counts() map[bpf.CounterKey]uint64 {
	r.Helper()
	counts := map[bpf.CounterKey]uint64{}
	var (
		k      bpf.CounterKey
		perCPU []uint64
	)
	it := r.Maps["counters"].Iterate()
	for it.Next(&k, &perCPU) {
		for _, n := range perCPU {
			counts[k] += n
		}
	}
	r.must(it.Err())
	return counts
}

// want sends a frame and wants a verdict, written as "allow policy".
func (r *rig) want(want string, dir int, frame []byte) {
	r.Helper()
	if got := r.run(dir, frame).String(); got != want {
		r.Errorf("%s: got %s, want %s", dirNames[dir], got, want)
	}
}

// family holds the addresses of one family, so that a case is written once for both.
type family struct {
	name, pod, pod2, peer, other, node string
	wide, host, all                    string // prefixes around peer
	index                              int
}

var (
	v4       = family{"IPv4", "10.0.1.11", "10.0.1.99", "198.18.0.7", "198.18.99.9", "10.0.0.10", "198.18.0.0/16", "198.18.0.7/32", "0.0.0.0/0", bpf.V4}
	v6       = family{"IPv6", "fd00:10:1::11", "fd00:10:1::99", "fd00:7::7", "fd00:99::9", "fd00:10::10", "fd00:7::/32", "fd00:7::7/128", "::/0", bpf.V6}
	families = []family{v4, v6}
)

func at(addr string, port int) string {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port)).String()
}

func (f family) proto(icmp4, icmp6 int) int { return []int{icmp4, icmp6}[f.index] }

// tcp and udp make a packet between pod:podPort and remote:port, in a direction.
func (f family) tcp(dir, podPort int, remote string, port int, flags testenv.TCPFlags) []byte {
	if dir == bpf.Egress {
		return testenv.TCP(at(f.pod, podPort), at(remote, port), flags)
	}
	return testenv.TCP(at(remote, port), at(f.pod, podPort), flags)
}

func (f family) udp(dir, podPort int, remote string, port int) []byte {
	if dir == bpf.Egress {
		return testenv.UDP(at(f.pod, podPort), at(remote, port))
	}
	return testenv.UDP(at(remote, port), at(f.pod, podPort))
}

// open makes the packet that opens a flow to the given port, and reply the answer to it.
func (f family) open(dir int, remote string, port int) []byte {
	if dir == bpf.Egress {
		return f.tcp(dir, 41000, remote, port, testenv.SYN)
	}
	return f.tcp(dir, port, remote, 41000, testenv.SYN)
}

func (r *rig) flows(f family) int {
	n := 0
	k := make([]byte, r.Maps[f.flowsMap()].KeySize())
	var v bpf.Flow
	it := r.Maps[f.flowsMap()].Iterate()
	for it.Next(&k, &v) {
		n++
	}
	r.must(it.Err())
	return n
}

func (f family) flowsMap() string { return []string{"flows4", "flows6"}[f.index] }

// flow returns the flow between pod:lport and remote:rport.
func (r *rig) flow(f family, proto, lport int, remote string, rport int) (any, *bpf.Flow) {
	r.Helper()
	a := netip.MustParseAddr(remote)
	var k any = bpf.FlowKey4{Pod: podID, Remote: bpf.Addr4(a), Lport: bpf.NetPort(uint16(lport)), Rport: bpf.NetPort(uint16(rport)), Proto: uint8(proto)}
	if f.index == bpf.V6 {
		k = bpf.FlowKey6{Pod: podID, Remote: a.As16(), Lport: bpf.NetPort(uint16(lport)), Rport: bpf.NetPort(uint16(rport)), Proto: uint8(proto)}
	}
	var v bpf.Flow
	if err := r.Maps[f.flowsMap()].Lookup(k, &v); err != nil {
		return k, nil
	}
	return k, &v
}

// editFlow changes the entry of a flow that must be there.
func (r *rig) editFlow(f family, proto, lport int, remote string, rport int, edit func(*bpf.Flow)) {
	r.Helper()
	k, v := r.flow(f, proto, lport, remote, rport)
	if v == nil {
		r.Fatalf("no flow %d <-> %s:%d", lport, remote, rport)
	}
	edit(v)
	r.must(r.Maps[f.flowsMap()].Put(k, v))
}

// clear forgets all flows and fragments.
func (r *rig) clear() {
	r.Helper()
	for _, name := range []string{"flows4", "flows6", "spill4", "spill6", "frags", "frag_spill"} {
		m := r.Maps[name]
		var keys [][]byte
		k, v := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
		it := m.Iterate()
		for it.Next(&k, &v) {
			keys = append(keys, slices.Clone(k))
		}
		for _, k := range keys {
			r.must(m.Delete(k))
		}
	}
}

// age puts the last change of policy, and all packets before it, a while back.
func (r *rig) age(f family) {
	r.Helper()
	const while = 1000
	r.slots.At(slotID).ChangedAt -= while
	m := r.Maps[f.flowsMap()]
	flows := map[string]bpf.Flow{}
	k := make([]byte, m.KeySize())
	var v bpf.Flow
	it := m.Iterate()
	for it.Next(&k, &v) {
		flows[string(k)] = v
	}
	r.must(it.Err())
	for k, v := range flows {
		v.Stamp -= while
		r.must(m.Put([]byte(k), &v))
	}
}

func (r *rig) addNodeAddr(f family) {
	r.must(r.Maps["node_addrs"].Put(bpf.NewNodeAddr(netip.MustParseAddr(f.node)), uint8(1)))
}

// both runs a test for both families, each on its own rig.
func both(t *testing.T, run func(t *testing.T, r *rig, f family)) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) { run(t, newRig(t), f) })
	}
}

func be16(b []byte, v int) { binary.BigEndian.PutUint16(b, uint16(v)) }

func addrOf(addrPort string) netip.Addr { return netip.MustParseAddrPort(addrPort).Addr() }
