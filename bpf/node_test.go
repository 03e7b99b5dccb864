package bpf_test

import (
	"testing"

	"github.com/latch-cni/latch/bpf"
)

// D3: what the node itself sends into the pod passes, with its answers, whatever the source address.
func TestFromNode(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2})
		fromNode := func(want string, frame []byte) {
			t.Helper()
			if got := r.runFrom(bpf.Ingress, frame, 0).String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		fromNode("allow node", f.tcp(bpf.Ingress, 8080, f.node, 50000, syn))
		r.want("allow flow", bpf.Egress, f.tcp(bpf.Egress, 8080, f.node, 50000, synAck))
		fromNode("allow flow", f.tcp(bpf.Ingress, 8080, f.node, 50000, ack))
		fromNode("allow node", f.udp(bpf.Ingress, 8080, f.other, 50000))
		r.want("allow flow", bpf.Egress, f.udp(bpf.Egress, 8080, f.other, 50000))
		r.want("deny policy", bpf.Egress, f.udp(bpf.Egress, 8080, f.other, 50001))

		// No policy cuts them.
		r.load(policy{onMiss: deny2})
		r.age(f)
		r.want("allow flow", bpf.Egress, f.udp(bpf.Egress, 8080, f.other, 50000))

		// Connections that are older than the table, but not those that the node refuses or answers.
		fromNode("allow node", f.tcp(bpf.Ingress, 8080, f.node, 50001, ack))
		r.want("allow flow", bpf.Egress, f.tcp(bpf.Egress, 8080, f.node, 50001, ack))
		fromNode("allow node", f.tcp(bpf.Ingress, 8080, f.node, 50002, rst))
		fromNode("allow node", f.tcp(bpf.Ingress, 8080, f.node, 50002, synAck))
		r.want("deny policy", bpf.Egress, f.tcp(bpf.Egress, 8080, f.node, 50002, ack))

		// Forwarded is not sent, even with the node's address.
		r.addNodeAddr(f)
		r.want("deny policy", bpf.Ingress, f.tcp(bpf.Ingress, 8081, f.node, 50000, syn))
		r.node().Flags = bpf.NodeAddressIsNode
		r.want("allow node", bpf.Ingress, f.tcp(bpf.Ingress, 8081, f.node, 50000, syn))
		r.want("deny policy", bpf.Ingress, f.tcp(bpf.Ingress, 8081, f.other, 50000, syn))
	})
}

// The node's packets pass even on a flow of the pod that was cut, and do not revive it.
func TestFromNodeOnCutFlow(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(onlyTo(bpf.Egress, f))
		r.want("allow policy", bpf.Egress, f.udp(bpf.Egress, 41000, f.peer, 80))
		r.load(policy{onMiss: deny2})
		r.age(f)
		if got := r.runFrom(bpf.Ingress, f.udp(bpf.Ingress, 41000, f.peer, 80), 0).String(); got != "allow flow" {
			t.Errorf("got %s", got)
		}
		r.want("deny cut", bpf.Ingress, f.udp(bpf.Ingress, 41000, f.peer, 80))
		r.want("deny cut", bpf.Egress, f.udp(bpf.Egress, 41000, f.peer, 80))
	})
}

// D2: what the pod sent comes back to it. It must not open a way out by choosing its own source.
func TestHairpin(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2})
		hairpin := func(want string, frame []byte) {
			t.Helper()
			if got := r.runFrom(bpf.Ingress, frame, podIfindex).String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		hairpin("allow hairpin", f.tcp(bpf.Ingress, 8080, f.node, 50000, syn))
		hairpin("allow hairpin", f.tcp(bpf.Ingress, 8080, f.node, 50000, ack))
		r.want("deny policy", bpf.Egress, f.tcp(bpf.Egress, 8080, f.node, 50000, synAck))
		hairpin("allow hairpin", f.udp(bpf.Ingress, 8080, f.other, 50000))
		r.want("deny policy", bpf.Egress, f.udp(bpf.Egress, 8080, f.other, 50000))

		// With the node's address it is masqueraded, and the answer may go back. In IPv6 the pod can
		// claim that address, and must not open itself a way by UDP.
		r.addNodeAddr(f)
		hairpin("allow hairpin", f.tcp(bpf.Ingress, 8080, f.node, 50000, syn))
		r.want("allow flow", bpf.Egress, f.tcp(bpf.Egress, 8080, f.node, 50000, synAck))
		hairpin("allow flow", f.tcp(bpf.Ingress, 8080, f.node, 50000, ack))
		r.want("allow flow", bpf.Egress, f.tcp(bpf.Egress, 8080, f.node, 50000, ack))
		r.want("deny policy", bpf.Egress, f.tcp(bpf.Egress, 8080, f.node, 50000, syn))
		hairpin("allow hairpin", f.udp(bpf.Ingress, 8080, f.node, 50000))
		r.want([]string{"allow flow", "deny policy"}[f.index], bpf.Egress, f.udp(bpf.Egress, 8080, f.node, 50000))

		// Where it cannot choose its source, the flow is one.
		r.node().Flags = bpf.NodeJudgeToNode
		r.pods.At(podIfindex).Flags = bpf.PodAntispoof
		hairpin("allow hairpin", f.tcp(bpf.Ingress, 8080, f.node, 50001, syn))
		r.want("allow flow", bpf.Egress, f.tcp(bpf.Egress, 8080, f.node, 50001, synAck))
	})
}
