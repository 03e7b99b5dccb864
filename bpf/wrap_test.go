package bpf_test

import (
	"testing"

	"github.com/latch-cni/latch/bpf"
)

// Stamps wrap after 2.28 years. What is older than half of that is not ahead of the clock.
func TestStampsWrap(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		packet := func(d int) []byte { return f.udp(d, lport, f.peer, rport) }
		const half = 1 << 31
		for _, age := range []uint32{half - 1000, half + 1000, half + half/2} {
			r.clear()
			r.load(onlyTo(dir, f))
			r.want("allow policy", dir, packet(dir))
			r.want("allow flow", 1-dir, packet(1-dir))
			r.editFlow(f, 17, lport, f.peer, rport, func(v *bpf.Flow) { v.Stamp -= age })
			r.want("deny policy", 1-dir, packet(1-dir))

			// A change of policy that long ago leaves no grace.
			r.want("allow policy", dir, packet(dir))
			r.load(policy{onMiss: deny2})
			r.slots.At(slotID).ChangedAt -= age
			r.editFlow(f, 17, lport, f.peer, rport, func(v *bpf.Flow) { v.Flags, v.CutAt = bpf.FlowCut, bpf.Now()-age })
			r.want("deny cut", dir, packet(dir))
			r.want("deny cut", 1-dir, packet(1-dir))
		}
	})
}
