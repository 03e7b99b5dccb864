package bpf

import "github.com/cilium/ebpf"

// Programs returns the loaded programs by their names.
func (o *Objects) Programs() map[string]*ebpf.Program {
	return map[string]*ebpf.Program{latchProgFromPod: o.FromPod, latchProgToPod: o.ToPod}
}

// Reasons lists every reason.
func Reasons() []Reason { return numbered[Reason](int(reasonMax)) }

// Tables lists every table.
func Tables() []Table { return numbered[Table](int(tableMax)) }

// Ends lists every End.
func Ends() []End { return numbered[End](int(endMax)) }

func numbered[T ~uint8 | ~uint32](n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = T(i)
	}
	return all
}
