//go:build latchother

package bpf

import (
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// vary adds an instruction without effect behind the first one of each program.
func vary(spec *ebpf.CollectionSpec) {
	for _, p := range spec.Programs {
		p.Instructions = slices.Insert(p.Instructions, 1, asm.Mov.Imm(asm.R0, 0))
	}
}
