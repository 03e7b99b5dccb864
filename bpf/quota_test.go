package bpf_test

import (
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// A pod that floods the memory of fragments pushes out its own and nobody else's. What it sends while
// nobody else floods still passes, and denials hold in either table.
func TestFloodOfFragments(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {{f.host, ranges(17, 80, 80)}}}})
		cut := func(port int, id uint16) [][]byte {
			return fragments(testenv.UDP(at(f.pod, 41000), at(f.peer, port), make([]byte, 100)...), id, 64)
		}
		r.pods.At(podIfindex).Pod = podID + 1
		r.want("allow policy", bpf.Egress, cut(80, 1)[0])
		r.pods.At(podIfindex).Pod = podID

		const share, spill, flood = 4096 / 4, 4096 / 8, 6000
		r.want("allow policy", bpf.Egress, cut(80, 0)[0])
		began := time.Now()
		for id := 1; id < flood; id++ {
			if allow, err := r.once(bpf.Egress, cut(80, uint16(id))[0]); err != nil || !allow {
				t.Fatalf("allow is %v, error %v", allow, err)
			}
		}
		over := r.counts()[bpf.CounterKey{Slot: slotID, Dir: bpf.Egress, Reason: uint8(bpf.ReasonOverShare), Allow: 1}]
		if int(over) < flood-windows(began)*share || over > flood-share {
			t.Errorf("%d counted as over the share of %d", over, share)
		}
		r.want("allow flow", bpf.Egress, cut(80, 0)[1])
		r.want("allow flow", bpf.Egress, cut(80, flood-1)[1])
		if windows(began) == 1 {
			r.want("deny fragment", bpf.Egress, cut(80, flood-2*spill)[1])
		}
		r.want("deny policy", bpf.Egress, cut(81, 0)[0])
		r.want("deny fragment", bpf.Egress, cut(80, 0)[1])
		r.want("deny policy", bpf.Egress, cut(81, flood-1)[0])
		r.want("deny fragment", bpf.Egress, cut(80, flood-1)[1])
		// What has spilled does not shadow what it sends later, nor the other way round.
		if got := r.run(bpf.Egress, cut(80, 0)[0]); !got.allow || (windows(began) == 1 && got.reason != bpf.ReasonOverShare) {
			t.Errorf("got %v beyond the share", got)
		}
		r.want("allow flow", bpf.Egress, cut(80, 0)[1])

		r.pods.At(podIfindex).Pod = podID + 1
		r.want("allow flow", bpf.Egress, cut(80, 1)[1])
		r.want("deny fragment", bpf.Egress, cut(80, 2)[1])
	})
}

// A pod that floods the ring of events leaves half of it to the others; what it loses is counted.
func TestFloodOfEvents(t *testing.T) {
	r := newRig(t)
	rd, err := ringbuf.NewReader(r.Maps["events"])
	r.must(err)
	defer rd.Close()
	r.load(policy{onMiss: deny2})
	r.node().Flags = bpf.NodeEventsDeny
	const few = 30 // the ring has room for 819
	send := func(n int) {
		t.Helper()
		for range n {
			if allow, err := r.once(bpf.Egress, v4.open(bpf.Egress, v4.peer, 80)); err != nil || allow {
				t.Fatalf("allow is %v, error %v", allow, err)
			}
		}
	}
	flood, lost := 0, func() uint64 { return r.counts()[bpf.CounterKey{Slot: bpf.CounterLostEvents, Dir: bpf.Egress}] }
	for ; lost() == 0 && flood < 5000; flood += 20 {
		send(20)
	}
	r.pods.At(podIfindex).Pod = podID + 1
	send(few)
	seen := map[uint32]int{}
	for _, e := range readEvents(t, rd) {
		seen[e.Pod]++
	}
	if seen[podID+1] != few || seen[podID] < 300 || seen[podID] > 700 || int(lost()) != flood-seen[podID] {
		t.Errorf("%d of %d events of a quiet pod; %d of %d of the flooding one, %d counted as lost", seen[podID+1], few, seen[podID], flood, lost())
	}
	// With the ring read, nothing is lost.
	r.pods.At(podIfindex).Pod = podID
	send(200)
	if n := len(readEvents(t, rd)); n != 200 {
		t.Errorf("%d of 200 events with room for all", n)
	}
}
