package bpf

import "github.com/cilium/ebpf"

// Program returns a loaded program by its name, nil when there is none.
func (o *Objects) Program(name string) *ebpf.Program {
	return map[string]*ebpf.Program{latchProgFromPod: o.FromPod, latchProgToPod: o.ToPod}[name]
}

// Reasons lists every reason.
func Reasons() []Reason {
	all := make([]Reason, reasonMax)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}
