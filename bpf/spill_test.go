package bpf_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
)

// A pod that floods the tables pushes out its own flows and nobody else's, and its new flows still work.
func TestFloodSpills(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		all := []rule{allPorts(f.all)}
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: all}})
		out := func(port int) []byte { return f.udp(bpf.Egress, port, f.peer, 53) }
		in := func(port int) []byte { return f.udp(bpf.Ingress, port, f.peer, 53) }

		// Another pod's flow, as old as can be.
		r.pods.At(podIfindex).Pod = podID + 1
		r.want("allow policy", bpf.Egress, out(99))
		r.pods.At(podIfindex).Pod = podID

		send := func(frame []byte) { // no counting: there are many
			t.Helper()
			if allow, err := r.once(bpf.Egress, frame); err != nil || !allow {
				t.Fatalf("allow is %v, error %v", allow, err)
			}
		}
		const share, flood = 4096 / 4, 20000
		began := time.Now()
		for port := 1000; port < 1000+flood; port++ {
			send(out(port))
		}
		if n, most := r.flows(f), windows(began)*share+1; n > most {
			t.Errorf("the table holds %d flows, want at most %d", n, most)
		}
		// What it opened first and last is known, in either table.
		r.want("allow flow", bpf.Ingress, in(1000))
		r.want("allow flow", bpf.Ingress, in(1000+flood-1))
		r.want("deny policy", bpf.Ingress, in(1000+flood))
		r.want("allow over-share", bpf.Egress, f.tcp(bpf.Egress, 500, f.peer, 80, syn))
		r.want("allow flow", bpf.Ingress, f.tcp(bpf.Ingress, 500, f.peer, 80, synAck))

		// A flow that is opened again moves, so that no stale one shadows it.
		k, _ := r.flow(f, 17, 1000, f.peer, 53)
		r.must(r.Maps[f.flowsMap()].Delete(k))
		r.want("deny policy", bpf.Ingress, in(1000))
		r.want("allow over-share", bpf.Egress, out(1000))
		r.want("allow flow", bpf.Ingress, in(1000))

		r.pods.At(podIfindex).Pod = podID + 1
		r.want("allow flow", bpf.Ingress, in(99))
		r.want("deny policy", bpf.Ingress, in(1000+flood-1))
	})
}

// windows is in how many of the times that shares are counted in, 16 s each, the time since then lies at
// most: a slow machine needs more than one.
func windows(since time.Time) int { return 1 + int(time.Since(since)/(15*time.Second)) }

// once runs a frame and looks at nothing but the verdict.
func (r *rig) once(dir int, frame []byte) (bool, error) {
	prog := r.ToPod
	if dir == bpf.Egress {
		prog = r.FromPod
	}
	code, err := prog.Run(&ebpf.RunOptions{Data: frame, Context: &skbContext{Ifindex: podIfindex}, Repeat: 1})
	return code == next, err
}
