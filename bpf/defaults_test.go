package bpf_test

import (
	"testing"

	"github.com/latch-cni/latch/bpf"
)

// A pod that nothing is known of has its flows judged again when its default changes.
func TestMoveBetweenDefaults(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.bind(bpf.SlotDefaultAllow)
		r.want("allow policy", bpf.Egress, f.udp(bpf.Egress, 41000, f.peer, 80))
		r.want("allow flow", bpf.Ingress, f.udp(bpf.Ingress, 41000, f.peer, 80))
		r.bind(bpf.SlotDefaultDeny)
		r.want("allow flow", bpf.Ingress, f.udp(bpf.Ingress, 41000, f.peer, 80)) // for the grace
		r.editFlow(f, 17, 41000, f.peer, 80, func(v *bpf.Flow) { v.CutAt = bpf.Now() - 2 })
		r.want("deny cut", bpf.Ingress, f.udp(bpf.Ingress, 41000, f.peer, 80))
		r.want("deny cut", bpf.Egress, f.udp(bpf.Egress, 41000, f.peer, 80))
		r.bind(bpf.SlotDefaultAllow)
		r.want("allow flow", bpf.Egress, f.udp(bpf.Egress, 41000, f.peer, 80))
	})
}
