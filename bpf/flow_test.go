package bpf_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

const (
	syn    = testenv.SYN
	synAck = testenv.SYN | testenv.ACK
	ack    = testenv.ACK
	fin    = testenv.FIN | testenv.ACK
	rst    = testenv.RST
)

// onlyTo isolates both directions and allows one to open TCP and UDP to port 80 of peer (Egress), or
// peer to port 80 of the pod (Ingress).
func onlyTo(dir int, f family) policy {
	p := policy{onMiss: deny2}
	p.rules[dir] = []rule{{f.host, ranges(6, 80, 80)}}
	p.rules[dir][0].ports = []point{from(0, denied), from(key(6, 80), allowed), from(key(6, 81), denied), from(key(17, 80), allowed), from(key(17, 81), denied)}
	return p
}

// ends returns the ports of pod and peer of a flow to port 80 that was opened in direction dir.
func ends(dir int) (lport, rport int) {
	if dir == bpf.Egress {
		return 41000, 80
	}
	return 80, 41000
}

// eachDir runs a test for both families and both directions of opening.
func eachDir(t *testing.T, run func(t *testing.T, r *rig, f family, dir int)) {
	both(t, func(t *testing.T, r *rig, f family) {
		for dir := range 2 {
			t.Run(dirNames[dir], func(t *testing.T) {
				r := &rig{t, r.Objects, r.pods, r.slots, r.nodes}
				r.clear()
				r.bind(slotID)
				r.load(onlyTo(dir, f))
				r.node().Timeouts = bpf.DefaultTimeouts().Stamps()
				r.node().Flags = 0
				run(t, r, f, dir)
			})
		}
	})
}

func TestTCPLife(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		seg := func(d int, flags testenv.TCPFlags) []byte { return f.tcp(d, lport, f.peer, rport, flags) }
		state := func(want uint8) {
			t.Helper()
			if _, v := r.flow(f, 6, lport, f.peer, rport); v == nil || v.State != want || v.Dir != uint8(dir) {
				t.Errorf("flow is %+v, want state %d", v, want)
			}
		}
		r.want("deny policy", 1-dir, f.tcp(1-dir, lport, f.peer, rport, syn))
		if n := r.flows(f); n != 0 {
			t.Errorf("a denied packet left %d flows", n)
		}
		r.want("allow policy", dir, seg(dir, syn))
		state(bpf.FlowNew)
		r.want("allow policy", dir, seg(dir, syn)) // sent again
		r.want("allow flow", 1-dir, seg(1-dir, synAck))
		state(bpf.FlowEstablished)
		r.want("allow flow", dir, seg(dir, ack))
		r.want("allow flow", 1-dir, seg(1-dir, ack|testenv.PSH))
		r.want("allow flow", dir, seg(dir, fin))
		r.want("allow flow", dir, seg(dir, fin))
		state(bpf.FlowEstablished) // half closed is open
		r.want("allow flow", 1-dir, seg(1-dir, ack))
		r.want("allow flow", 1-dir, seg(1-dir, fin))
		state(bpf.FlowClosing)
		r.want("allow flow", dir, seg(dir, ack))
		r.want("allow flow", 1-dir, seg(1-dir, fin))
		r.want("allow flow", dir, seg(dir, ack))

		r.want("allow policy", dir, seg(dir, syn)) // the port is used again
		state(bpf.FlowNew)
		r.want("allow flow", 1-dir, seg(1-dir, synAck))
		r.want("allow flow", 1-dir, seg(1-dir, rst))
		state(bpf.FlowClosing)
		r.want("allow policy", dir, seg(dir, syn))
		state(bpf.FlowNew)
		r.want("allow flow", 1-dir, seg(1-dir, synAck))
		state(bpf.FlowEstablished)
	})
}

// D13: a SYN from the other side is a connection of its own, and harms the flow in no case.
func TestSynInReplyDirection(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		seg := func(d int, flags testenv.TCPFlags) []byte { return f.tcp(d, lport, f.peer, rport, flags) }
		r.want("allow policy", dir, seg(dir, syn))
		r.want("allow flow", 1-dir, seg(1-dir, synAck))
		_, before := r.flow(f, 6, lport, f.peer, rport)
		r.want("deny policy", 1-dir, seg(1-dir, syn))
		if _, after := r.flow(f, 6, lport, f.peer, rport); *after != *before {
			t.Errorf("a denied SYN changed the flow from %+v to %+v", before, after)
		}
		r.want("allow flow", dir, seg(dir, ack))

		// Simultaneous open: both may open, and the flow goes on whoever comes last.
		p := onlyTo(dir, f)
		p.rules[1-dir] = []rule{allPorts(f.host)}
		r.load(p)
		r.clear()
		r.want("allow policy", dir, seg(dir, syn))
		r.want("allow policy", 1-dir, seg(1-dir, syn))
		r.want("allow flow", dir, seg(dir, synAck))
		r.want("allow flow", 1-dir, seg(1-dir, synAck))
		r.want("allow flow", dir, seg(dir, ack))
		r.want("allow flow", 1-dir, seg(1-dir, ack))
	})
}

// D7: TCP in mid-stream without a flow.
func TestMidstream(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		seg := func(d int, flags testenv.TCPFlags) []byte { return f.tcp(d, lport, f.peer, rport, flags) }
		none := func() {
			t.Helper()
			if n := r.flows(f); n != 0 {
				t.Errorf("%d flows were recorded", n)
				r.clear()
			}
		}
		for _, flags := range []testenv.TCPFlags{ack, fin, rst, synAck, testenv.PSH | ack} {
			r.want("allow reply", 1-dir, seg(1-dir, flags))
			none()
		}
		r.want("allow policy", dir, seg(dir, rst))
		none()
		// A SYN-ACK in the direction of the rules answers nobody who was allowed.
		r.want("deny policy", dir, seg(dir, synAck))
		none()
		r.want("allow policy", dir, seg(dir, ack))
		if _, v := r.flow(f, 6, lport, f.peer, rport); v == nil || v.Dir != uint8(dir) || v.Flags != bpf.FlowGuessed {
			t.Errorf("flow is %+v", v)
		}
		r.want("allow flow", 1-dir, seg(1-dir, ack))

		for _, flags := range []testenv.TCPFlags{ack, fin, rst, synAck, testenv.PSH | ack} {
			for d := range 2 {
				r.want("deny policy", d, f.tcp(d, lport, f.other, rport, flags))
				r.want("deny policy", d, f.tcp(d, lport+1, f.peer, rport+1, flags))
			}
		}
		if n := r.flows(f); n != 1 {
			t.Errorf("%d flows, want 1", n)
		}
	})
}

func TestUDPLife(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		r.want("deny policy", 1-dir, f.udp(1-dir, lport, f.peer, rport))
		r.want("allow policy", dir, f.udp(dir, lport, f.peer, rport))
		r.want("allow flow", dir, f.udp(dir, lport, f.peer, rport))
		r.want("allow flow", 1-dir, f.udp(1-dir, lport, f.peer, rport))
		r.want("allow flow", 1-dir, f.udp(1-dir, lport, f.peer, rport))
		r.want("deny policy", 1-dir, f.udp(1-dir, lport, f.other, rport))
		r.want("deny policy", 1-dir, f.udp(1-dir, lport+1, f.peer, rport))
		r.want("deny policy", 1-dir, f.udp(1-dir, lport, f.peer, rport+1))
		if _, v := r.flow(f, 17, lport, f.peer, rport); v.State != bpf.FlowEstablished {
			t.Errorf("flow is %+v", v)
		}
	})
}

// Other pods, other addresses of the pod and other protocols are other flows.
func TestFlowsAreApart(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		r.want("allow policy", dir, f.udp(dir, lport, f.peer, rport))
		g := f
		g.pod = f.pod2
		r.want("deny policy", 1-dir, g.udp(1-dir, lport, f.peer, rport))
		r.want("allow policy", dir, g.udp(dir, lport, f.peer, rport))
		r.want("allow flow", 1-dir, g.udp(1-dir, lport, f.peer, rport))
		r.want("deny policy", 1-dir, f.tcp(1-dir, lport, f.peer, rport, syn))
		r.pods.At(podIfindex).Pod = podID + 1
		r.want("deny policy", 1-dir, f.udp(1-dir, lport, f.peer, rport))
	})
}

func TestTimeouts(t *testing.T) {
	cases := []struct {
		name    string
		proto   int
		answer  bool
		flags   []testenv.TCPFlags // more packets of the opener
		timeout int
	}{
		{"unanswered SYN", 6, false, nil, bpf.TimeoutTCPSyn},
		{"established", 6, true, nil, bpf.TimeoutTCPEstablished},
		{"half closed", 6, true, []testenv.TCPFlags{fin}, bpf.TimeoutTCPEstablished},
		{"reset", 6, true, []testenv.TCPFlags{rst}, bpf.TimeoutTCPClosing},
		{"unanswered UDP", 17, false, nil, bpf.TimeoutUDP},
		{"answered UDP", 17, true, nil, bpf.TimeoutUDPAnswered},
	}
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		for _, c := range cases {
			packet := func(d int, flags testenv.TCPFlags) []byte {
				if c.proto == 17 {
					return f.udp(d, lport, f.peer, rport)
				}
				return f.tcp(d, lport, f.peer, rport, flags)
			}
			expired := map[int]string{6: "allow reply", 17: "deny policy"}[c.proto]
			for age, want := range map[time.Duration]string{4 * time.Second: "allow flow", 6 * time.Second: expired} {
				t.Run(fmt.Sprintf("%s after %v", c.name, age), func(t *testing.T) {
					r := &rig{t, r.Objects, r.pods, r.slots, r.nodes}
					r.clear()
					for i := range r.node().Timeouts {
						r.node().Timeouts[i] = bpf.Stamp(time.Hour)
					}
					r.node().Timeouts[c.timeout] = bpf.Stamp(5 * time.Second)
					r.want("allow policy", dir, packet(dir, syn))
					if c.answer {
						r.want("allow flow", 1-dir, packet(1-dir, synAck))
					}
					for _, flags := range c.flags {
						r.want("allow flow", dir, packet(dir, flags))
					}
					r.editFlow(f, c.proto, lport, f.peer, rport, func(v *bpf.Flow) { v.Stamp -= bpf.Stamp(age) })
					r.want(want, 1-dir, packet(1-dir, ack))
					_, v := r.flow(f, c.proto, lport, f.peer, rport)
					if fresh := bpf.Now()-v.Stamp < 10; fresh != (want == "allow flow") {
						t.Errorf("stamp is %d old", bpf.Now()-v.Stamp)
					}
				})
			}
		}
	})
}

// The stamp is written once a second, not with every packet; and it may be ahead of the clock.
func TestStampIsCheap(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		r.want("allow policy", dir, f.udp(dir, lport, f.peer, rport))
		r.want("allow flow", 1-dir, f.udp(1-dir, lport, f.peer, rport))
		for _, age := range []int{-30, 30, 300} {
			var stamp uint32
			r.editFlow(f, 17, lport, f.peer, rport, func(v *bpf.Flow) {
				v.Stamp = bpf.Now() - uint32(age)
				stamp = v.Stamp
			})
			r.want("allow flow", dir, f.udp(dir, lport, f.peer, rport))
			if _, v := r.flow(f, 17, lport, f.peer, rport); (v.Stamp != stamp) != (age > 64) {
				t.Errorf("age %d: stamp went from %d to %d", age, stamp, v.Stamp)
			}
		}
	})
}

// D1: a change of policy has live flows judged again, as they were opened.
func TestGeneration(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		for proto, packet := range map[int]func(d int) []byte{
			6:  func(d int) []byte { return f.tcp(d, lport, f.peer, rport, ack) },
			17: func(d int) []byte { return f.udp(d, lport, f.peer, rport) },
		} {
			flow := func() *bpf.Flow {
				_, v := r.flow(f, proto, lport, f.peer, rport)
				return v
			}
			r.clear()
			r.load(onlyTo(dir, f))
			r.want("allow policy", dir, packet(dir))
			r.want("allow flow", 1-dir, packet(1-dir))
			if proto == 6 { // as if its SYN had been seen
				r.editFlow(f, proto, lport, f.peer, rport, func(v *bpf.Flow) { v.Flags = 0 })
			}

			// Still allowed, seen first from either side.
			for d := range 2 {
				r.load(onlyTo(dir, f))
				r.want("allow flow", d, packet(d))
				if v := flow(); v.Generation != r.slots.At(slotID).Generation {
					t.Errorf("flow kept generation %d", v.Generation)
				}
			}

			// Denied: passes for the grace, then is cut in both directions.
			r.load(policy{onMiss: deny2})
			r.want("allow flow", 1-dir, packet(1-dir))
			r.want("allow flow", dir, packet(dir))
			v := flow()
			if wantCut := r.slots.At(slotID).ChangedAt + bpf.Stamp(time.Second); v.Flags&bpf.FlowCut == 0 || v.CutAt != wantCut {
				t.Errorf("flow is %+v, want cut at %d", v, wantCut)
			}
			// Another change that denies it too does not give it more time.
			cutAt := v.CutAt
			r.load(policy{onMiss: deny2})
			r.slots.At(slotID).ChangedAt += 1000
			r.want("allow flow", dir, packet(dir))
			if v := flow(); v.CutAt != cutAt {
				t.Errorf("cut moved from %d to %d", cutAt, v.CutAt)
			}
			r.editFlow(f, proto, lport, f.peer, rport, func(v *bpf.Flow) { v.CutAt = bpf.Now() - 2 })
			r.want("deny cut", dir, packet(dir))
			r.want("deny cut", 1-dir, packet(1-dir))
			// Policy that allows it again revives it.
			r.load(onlyTo(dir, f))
			r.want("allow flow", 1-dir, packet(1-dir))
			if v := flow(); v.Flags&bpf.FlowCut != 0 {
				t.Errorf("flow is %+v", v)
			}

			// The verdict of the other direction is of no use to it.
			r.load(onlyTo(1-dir, f))
			r.editFlow(f, proto, lport, f.peer, rport, func(v *bpf.Flow) { v.Flags, v.CutAt = bpf.FlowCut, bpf.Now()-2 })
			r.want("deny cut", dir, packet(dir))
			r.want("deny cut", 1-dir, packet(1-dir))

			// An idle flow meets the change long after it.
			r.load(onlyTo(dir, f))
			r.want("allow flow", dir, packet(dir))
			r.load(policy{onMiss: deny2})
			r.age(f)
			r.want("deny cut", 1-dir, packet(1-dir))

			// Rules that are not there do not revive it, nor do they cut it for good.
			r.slots.At(slotID).Flags = bpf.SlotUsed
			r.want("deny incomplete", dir, packet(dir))
		}
	})
}

// A flow met in mid-stream was opened by either side, so either direction keeps it.
func TestGenerationOfGuessedFlow(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		r.load(policy{onMiss: [2]uint32{allowed, allowed}})
		lport, rport := ends(dir)
		r.want("allow policy", 1-dir, f.tcp(1-dir, lport, f.peer, rport, ack))
		r.load(onlyTo(dir, f))
		r.want("allow flow", 1-dir, f.tcp(1-dir, lport, f.peer, rport, ack))
		if _, v := r.flow(f, 6, lport, f.peer, rport); v.Dir != uint8(dir) || v.Generation != r.slots.At(slotID).Generation {
			t.Errorf("flow is %+v", v)
		}
		r.load(policy{onMiss: deny2})
		r.age(f)
		r.want("deny cut", 1-dir, f.tcp(1-dir, lport, f.peer, rport, ack))
	})
}

// A pod moved to another slot is judged by that, flows included.
func TestMoveToOtherSlot(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		lport, rport := ends(dir)
		r.want("allow policy", dir, f.udp(dir, lport, f.peer, rport))
		p := policy{onMiss: deny2, slot: slotID + 1}
		r.load(p)
		r.slots.At(slotID + 1).ChangedAt -= 1000
		r.pods.At(podIfindex).Slot = slotID + 1
		// The grace begins with the move, which was after the last packet, and not with the slot's change.
		_, before := r.flow(f, 17, lport, f.peer, rport)
		r.want("allow flow", 1-dir, f.udp(1-dir, lport, f.peer, rport))
		_, v := r.flow(f, 17, lport, f.peer, rport)
		if since := v.CutAt - bpf.Stamp(time.Second) - before.Stamp; since > 64 {
			t.Errorf("grace begins %d after the last packet", int32(since))
		}
		r.editFlow(f, 17, lport, f.peer, rport, func(v *bpf.Flow) { v.CutAt = bpf.Now() - 2 })
		r.want("deny cut", 1-dir, f.udp(1-dir, lport, f.peer, rport))

		// It does not begin with the first packet after it.
		r.editFlow(f, 17, lport, f.peer, rport, func(v *bpf.Flow) { v.Flags, v.Stamp = 0, bpf.Now()-bpf.Stamp(5*time.Second) })
		r.want("deny cut", 1-dir, f.udp(1-dir, lport, f.peer, rport))
		r.want("deny policy", dir, f.udp(dir, lport+1, f.peer, rport))
	})
}
