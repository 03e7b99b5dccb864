package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// The programs' stack as Linux 5.10 counts it: in steps of 32 bytes a function, which newer kernels do
// not, so that those load what it refuses.
const (
	maxStack  = 512
	stackStep = 32
)

type frame struct {
	depth int
	calls map[string]bool
}

func TestStackDepth(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpec("latch_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	for name, prog := range spec.Programs {
		depth := deepest(framesOf(prog.Instructions), name)
		t.Logf("%s: %d bytes of stack", name, depth)
		if depth > maxStack || depth < stackStep {
			t.Errorf("%s: %d bytes of stack, limit is %d", name, depth, maxStack)
		}
	}
}

func framesOf(ins asm.Instructions) map[string]*frame {
	frames := map[string]*frame{}
	var f *frame
	copies := map[asm.Register]bool{} // of the frame pointer
	for _, in := range ins {
		if s := in.Symbol(); s != "" {
			f = &frame{calls: map[string]bool{}}
			frames[s] = f
			clear(copies)
		}
		class := in.OpCode.Class()
		switch {
		case in.IsFunctionCall():
			f.calls[in.Reference()] = true
		case class.IsStore() && in.Dst == asm.R10, class.IsLoad() && in.Src == asm.R10:
			f.depth = max(f.depth, -int(in.Offset))
		case class.IsALU() && in.OpCode.ALUOp() == asm.Mov && in.OpCode.Source() == asm.RegSource:
			copies[in.Dst] = in.Src == asm.R10
		case class.IsALU() && in.OpCode.ALUOp() == asm.Add && copies[in.Dst]:
			f.depth = max(f.depth, -int(in.Constant))
			copies[in.Dst] = false
		}
	}
	return frames
}

func deepest(frames map[string]*frame, name string) int {
	f := frames[name]
	below := 0
	for callee := range f.calls {
		below = max(below, deepest(frames, callee))
	}
	return (max(f.depth, 1)+stackStep-1)/stackStep*stackStep + below
}
