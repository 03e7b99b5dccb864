package bpf

import "github.com/cilium/ebpf"

// Programs returns the loaded programs by their names.
func (o *Objects) Programs() map[string]*ebpf.Program {
	return map[string]*ebpf.Program{latchProgFromPod: o.FromPod, latchProgToPod: o.ToPod}
}

// Reasons lists every reason.
func Reasons() []Reason {
	all := make([]Reason, reasonMax)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}
