package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// changed is the state after the node's addresses or switches, or policy, have changed a while ago.
func (r *rig) changed(f family) {
	r.Helper()
	r.load(policy{onMiss: deny2})
	r.age(f)
}

func (r *rig) wantFrom(want string, ingressIfindex uint32, frame []byte) {
	r.Helper()
	if got := r.runFrom(bpf.Ingress, frame, ingressIfindex).String(); got != want {
		r.Errorf("got %s, want %s", got, want)
	}
}

// A flow that the node opened is the node's as long as packets prove it. Others who have got the node's
// address since cannot use it, nor can the pod alone keep it.
func TestFlowOfTheNodeIsProvenAgain(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		in, out := f.udp(bpf.Ingress, 8080, f.node, 50000), f.udp(bpf.Egress, 8080, f.node, 50000)
		r.load(policy{onMiss: deny2})
		open := func() {
			t.Helper()
			r.clear()
			r.wantFrom("allow node", 0, in)
			r.want("allow flow", bpf.Egress, out)
			r.changed(f)
		}
		current := func(want bool) {
			t.Helper()
			_, v := r.flow(f, 17, 8080, f.node, 50000)
			if v == nil || (v.Generation == r.slots.At(slotID).Generation) != want {
				t.Errorf("flow is %+v, of the current generation must be %v", v, want)
			}
		}

		open()
		r.want("deny cut", bpf.Ingress, in) // of another host
		r.wantFrom("allow flow", 0, in)     // of the node
		current(true)
		r.want("allow flow", bpf.Ingress, in) // what follows is not looked at

		// The pod's answers leave time for a proof, once.
		open()
		r.want("allow flow", bpf.Egress, out)
		current(false)
		r.editFlow(f, 17, 8080, f.node, 50000, func(v *bpf.Flow) { v.CutAt = bpf.Now() - 1 })
		r.want("deny cut", bpf.Egress, out)
		r.changed(f)
		r.want("deny cut", bpf.Egress, out)
		r.wantFrom("allow flow", 0, in)
		r.want("allow flow", bpf.Egress, out)
		current(true)

		// Errors that quote the flow are no proof.
		open()
		r.wantFrom("allow related", 0, testenv.Unreachable(f.node, f.pod, out))
		current(false)

		// The node's socket is one, at an address that is the node's.
		open()
		r.listen("udp", f.node, 50000)
		r.want("allow flow", bpf.Egress, out)
		current(false)
		r.addNodeAddr(f)
		r.want("allow flow", bpf.Egress, out)
		current(true)
		r.changed(f)
		r.node().Flags = bpf.NodeJudgeToNode
		r.want("allow flow", bpf.Egress, out)
		current(false)
	})
}

// What a pod opened to its node is judged again when a switch has that judged, the address is the node's
// no longer, or the socket is gone.
func TestFlowToTheNodeIsJudgedAgain(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2})
		r.addNodeAddr(f)
		r.listen("tcp", f.node, 443)
		data := f.tcp(bpf.Egress, 41000, f.node, 443, ack)
		for name, end := range map[string]func(){
			"switch":  func() { r.node().Flags = bpf.NodeJudgeToNode },
			"address": func() { r.must(r.Maps["node_addrs"].Delete(bpf.NewNodeAddr(netip.MustParseAddr(f.node)))) },
		} {
			r.clear()
			r.want("allow node", bpf.Egress, f.tcp(bpf.Egress, 41000, f.node, 443, syn))
			r.want("allow flow", bpf.Ingress, f.tcp(bpf.Ingress, 41000, f.node, 443, synAck))
			r.changed(f)
			r.want("allow flow", bpf.Egress, data)
			end()
			r.want("allow flow", bpf.Egress, data) // nothing has changed the generation
			r.changed(f)
			if got := r.run(bpf.Egress, data).String(); got != "deny cut" {
				t.Errorf("%s: got %s", name, got)
			}
			r.node().Flags = 0
			r.addNodeAddr(f)
			if got := r.run(bpf.Egress, data).String(); got != "allow flow" {
				t.Errorf("%s, taken back: got %s", name, got)
			}
		}
	})
}

// A pod's connection to itself by way of a service is proven by its packets, and never cut by policy.
func TestHairpinIsProvenAgain(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2})
		r.addNodeAddr(f)
		in, out := f.tcp(bpf.Ingress, 8080, f.node, 50000, ack), f.tcp(bpf.Egress, 8080, f.node, 50000, ack)
		r.wantFrom("allow hairpin", podIfindex, f.tcp(bpf.Ingress, 8080, f.node, 50000, syn))
		r.want("allow flow", bpf.Egress, f.tcp(bpf.Egress, 8080, f.node, 50000, synAck))
		r.changed(f)
		r.want("deny cut", bpf.Ingress, in)
		r.wantFrom("allow flow", podIfindex, in)
		r.want("allow flow", bpf.Egress, out)

		// With another's address the pod's own packets pass to it, and prove nothing.
		r.must(r.Maps["node_addrs"].Delete(bpf.NewNodeAddr(netip.MustParseAddr(f.node))))
		r.changed(f)
		r.wantFrom("allow flow", podIfindex, in)
		r.want("deny cut", bpf.Egress, out)
	})
}
