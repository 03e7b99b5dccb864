package attach

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/latch-cni/latch/shared/testenv"
)

// Verdicts of programs.
const (
	next = -1
	ok   = 0
	drop = 2
	pipe = 3
)

// counter is a program that counts packets of IPv4 and ends with a verdict.
type counter struct {
	*ebpf.Program
	m *ebpf.Map
}

func (c counter) count() uint64 {
	var n uint64
	_ = c.m.Lookup(uint32(0), &n)
	return n
}

func newProgram(t testing.TB, name string, verdict int32) counter {
	t.Helper()
	testenv.RequireRoot(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "count", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	const protocol = 16 // offset in struct __sk_buff
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R1, asm.R1, protocol, asm.Word),
			asm.JNE.Imm(asm.R1, int32(binary.NativeEndian.Uint16([]byte{8, 0})), "end"),
			asm.StoreImm(asm.R10, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, verdict).WithSymbol("end"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return counter{Program: p, m: m}
}

func id(t testing.TB, p *ebpf.Program) ebpf.ProgramID {
	t.Helper()
	n, err := programID(p)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
