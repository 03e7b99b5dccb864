package bpf_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

const benchRepeat = 20000

// BenchmarkVerdicts prints what a packet costs beyond a program that does nothing. Machines are noisy:
// all cases run once in each round, each beside its empty twin, and ratios of one run are what counts.
// More rounds: -benchtime 50x.
func BenchmarkVerdicts(b *testing.B) {
	testenv.RequireRoot(b)
	cases := benchCases(b)
	for b.Loop() {
		for _, c := range cases {
			c.round()
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-44s %10s %10s %14s\n", "ns net of an empty program", "min", "median", "ratio with it")
	for _, c := range cases {
		slices.Sort(c.took)
		slices.Sort(c.idled)
		median, base := c.took[len(c.took)/2], c.idled[len(c.idled)/2]
		fmt.Fprintf(&table, "%-44s %10.1f %10.1f %14.2f\n", c.name, c.took[0]-c.idled[0], median-base, median/base)
	}
	fmt.Println(table.String()) // b.Log cuts it
}

type benchCase struct {
	name        string
	run, idle   func()    // benchRepeat packets through our program, or through the empty one
	took, idled []float64 // nanoseconds a packet
}

func (c *benchCase) round() {
	took := func(f func()) float64 {
		start := time.Now()
		f()
		return float64(time.Since(start).Nanoseconds()) / benchRepeat
	}
	c.idled = append(c.idled, took(c.idle))
	c.took = append(c.took, took(c.run))
}

func benchCases(b *testing.B) []*benchCase {
	var cases []*benchCase
	add := func(name string, prog, empty *ebpf.Program, frame []byte) {
		run := func(p *ebpf.Program) func() {
			return func() {
				_, err := p.Run(&ebpf.RunOptions{
					Data: frame, Repeat: benchRepeat,
					Context: &skbContext{Ifindex: podIfindex, IngressIfindex: otherIfindex},
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		cases = append(cases, &benchCase{name: name, run: run(prog), idle: run(empty)})
	}
	empty := emptyProgram(b)
	for _, f := range families {
		r := newBenchRig(b)
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {portRange(f.host, 6, 80, 80)}}})
		r.want("allow policy", bpf.Egress, f.tcp(bpf.Egress, 41000, f.peer, 80, syn))
		r.want("allow flow", bpf.Ingress, f.tcp(bpf.Ingress, 41000, f.peer, 80, synAck))
		add(f.name+" established", r.FromPod, empty, f.tcp(bpf.Egress, 41000, f.peer, 80, ack))
		add(f.name+" established, reply", r.ToPod, empty, f.tcp(bpf.Ingress, 41000, f.peer, 80, ack))
		add(f.name+" SYN denied, one address", r.FromPod, empty, f.tcp(bpf.Egress, 41000, f.other, 80, syn))
		add(f.name+" SYN allowed, one flow", r.FromPod, empty, f.tcp(bpf.Egress, 41001, f.peer, 80, syn))
	}
	for _, n := range []int{1, 100, 10000, 100000} {
		addPeers(b, add, fmt.Sprintf("%d /32", n), n, 32)
	}
	addPeers(b, add, "10000 of 4 lengths", 10000, 32, 28, 24, 20)
	addPeers(b, add, "10000 of 12 lengths", 10000, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21)
	return cases
}

func newBenchRig(b *testing.B) *rig {
	b.Helper()
	o, err := bpf.Load(bpf.Sizes{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = o.Close() })
	r := &rig{TB: b, Objects: o}
	r.pods, r.slots, r.nodes = mapArray[bpf.PodState](b, o.Maps["pod_state"]), mapArray[bpf.Slot](b, o.Maps["slots"]), mapArray[bpf.Node](b, o.Maps["node"])
	r.bind(slotID)
	return r
}

// addPeers measures new flows to, and denials beside, so many peers. Peer i is 20.0.0.0 + 2i, or a
// prefix of one of the lengths around it; what is denied lies between.
func addPeers(b *testing.B, add func(string, *ebpf.Program, *ebpf.Program, []byte), name string, n int, lens ...int) {
	r := newBenchRig(b)
	var rules []rule
	seen := map[netip.Prefix]bool{}
	for i := range n {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 20<<24+uint32(2*i))
		p := netip.PrefixFrom(netip.AddrFrom4(a), lens[i%len(lens)]).Masked()
		if p.Bits() != 32 { // not around the near misses
			binary.BigEndian.PutUint32(a[:], 30<<24+uint32(i)<<12)
			p = netip.PrefixFrom(netip.AddrFrom4(a), p.Bits()).Masked()
		}
		if !seen[p] {
			rules, seen[p] = append(rules, portRange(p.String(), 6, 80, 80)), true
		}
	}
	r.load(policy{onMiss: deny2, rules: [2][]rule{1: rules}})
	frame := v4.tcp(bpf.Egress, 41000, v4.peer, 80, syn)
	step := uint32(2 * len(lens)) // every peer with a host prefix
	for offset, kind := range []string{"new flow", "SYN denied"} {
		prog, idle := generator(b, r.FromPod, n/len(lens), step, uint32(offset)), generator(b, emptyProgram(b), n/len(lens), step, uint32(offset))
		add(name+": "+kind, prog, idle, frame)
		if kind == "SYN denied" {
			continue
		}
		before := r.flows(v4)
		if _, err := prog.Run(&ebpf.RunOptions{Data: frame, Repeat: 100, Context: &skbContext{Ifindex: podIfindex, IngressIfindex: podIfindex}}); err != nil {
			b.Fatal(err)
		}
		if made := r.flows(v4) - before; made != 100 {
			b.Fatalf("%s: 100 SYNs made %d flows", name, made)
		}
	}
}

func emptyProgram(b *testing.B) *ebpf.Program {
	b.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "t_empty", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close() })
	return p
}

// generator gives every packet the next source port and a scattered one of n peers, and calls prog.
func generator(b *testing.B, prog *ebpf.Program, n int, step, offset uint32) *ebpf.Program {
	b.Helper()
	must := func(m *ebpf.Map, err error) *ebpf.Map {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = m.Close() })
		return m
	}
	counter := must(ebpf.NewMap(&ebpf.MapSpec{Name: "t_count", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}))
	jump := must(ebpf.NewMap(&ebpf.MapSpec{Name: "t_jump", Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1}))
	if err := jump.Put(uint32(0), prog); err != nil {
		b.Fatal(err)
	}
	store := func(from int16, at, size int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, at), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, int32(from)),
			asm.Mov.Imm(asm.R4, size), asm.Mov.Imm(asm.R5, 0), asm.FnSkbStoreBytes.Call(),
		}
	}
	ins := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, counter.FD()), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord), asm.Mov.Reg(asm.R1, asm.R7), asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		// port = i mod 2^16, peer = 20.0.0.0 + offset + step * (i * 7919 mod n)
		asm.Mov.Reg(asm.R8, asm.R7), asm.HostTo(asm.BE, asm.R8, asm.Half), asm.StoreMem(asm.RFP, -8, asm.R8, asm.Half),
		asm.Mul.Imm(asm.R7, 7919), asm.Mod.Imm(asm.R7, int32(n)), asm.Mul.Imm(asm.R7, int32(step)), asm.Add.Imm(asm.R7, int32(20<<24+offset)),
		asm.HostTo(asm.BE, asm.R7, asm.Word), asm.StoreMem(asm.RFP, -12, asm.R7, asm.Word),
	}
	ins = append(ins, store(-8, 34, 2)...)
	ins = append(ins, store(-12, 30, 4)...)
	ins = append(ins,
		asm.Mov.Reg(asm.R1, asm.R6), asm.LoadMapPtr(asm.R2, jump.FD()), asm.Mov.Imm(asm.R3, 0), asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return(),
	)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "t_generator", Type: ebpf.SchedCLS, License: "GPL", Instructions: ins})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close() })
	return p
}
