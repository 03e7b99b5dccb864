package regress

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The first packet: a sender in the pod's namespace and senders outside of it send all the time, from
// before the interface exists until after DEL, cycle after cycle: permitted and forbidden datagrams, out
// of the pod and into it, by both families.
//
// What is measured, by sequence numbers alone:
//   - No forbidden packet that was sent after ADD returned arrives.
//   - Packets that were sent before latch ran at all cannot be judged by it, and arrive, which is the
//     control of the forbidden flows; in a real chain nobody is in the sandbox to send them.
//   - In every other cycle the host veth is set up only after ADD, so that there is no time before
//     latch: there no forbidden packet arrives at all.
//   - No permitted packet is lost, from the moment that ADD has returned until DEL begins. (Before, the
//     kernel itself drops some on their way into the pod: it takes a device's queues out of service
//     while it makes the qdisc that filters hang on.)
//   - Nothing arrives that was sent after DEL returned, though the interface is still there.
func TestFirstPacket(t *testing.T) {
	cycles := 500 // in each mode
	if testing.Short() {
		cycles = 20
	}
	for _, mode := range []string{"standard", "strict"} {
		t.Run(mode, func(t *testing.T) {
			f := newFirst(t, options{strict: mode == "strict"})
			f.apply(fmt.Sprintf("t1/start app=a IE\nE web udp/%d\nI web udp/%d", outPort, inPort))
			f.cycles(cycles)
		})
	}
}

// A pod that no policy selects: strict mode closes it from the first packet.
func TestFirstPacketOfUnselectedPodInStrictMode(t *testing.T) {
	f := newFirst(t, options{strict: true})
	f.closed = true
	f.cycles(20)
}

// cycles adds and deletes the pod again and again under the senders.
func (f *first) cycles(n int) {
	f.t.Helper()
	f.open()
	var took []time.Duration
	for i := range n {
		took = append(took, f.cycle(i%2 == 1))
		if f.t.Failed() {
			f.t.Fatalf("in cycle %d", i)
		}
	}
	f.shut()
	if strays := f.strays.Load(); strays > 0 {
		f.t.Errorf("%d forbidden packets arrived when their cycle was over", strays)
	}
	f.t.Logf("%d cycles, %d rounds of %d packets; ADD %s", n, f.seq.Load(), len(f.flows), percentiles(took))
}

// cycle is one life of the pod. With late the host veth is set up only after ADD.
func (f *first) cycle(late bool) time.Duration {
	f.t.Helper()
	f.begin()
	p := f.connect()
	if f.number.Load() == 1 {
		p.publish(nil)
	}
	var w window
	if !late {
		f.up(p)
		f.pass("before ADD", false)
		w.connected = f.seq.Load() + 1
	}
	p.add()
	w.added = f.seq.Load() + 1 // later rounds begin after ADD has returned
	if late {
		f.up(p)
		f.pass("set up", true)
		w.added, w.connected = 0, f.seq.Load()+1
	}
	f.pass("after ADD", true)
	w.deleting = f.seq.Load() - 1
	p.del()
	w.deleted = f.seq.Load() + 1
	f.eventually(arrival, func() error { return f.reached(w.deleted + 1) })
	f.check(w)
	p.end()
	return p.took
}

// window are the rounds at which something changed for the packets of a cycle.
type window struct {
	connected int64 // there was a way to the pod and out of it
	added     int64 // ADD had returned; 0 if there was no way before it
	deleting  int64 // the last that was through before DEL began
	deleted   int64 // DEL had returned
}

// check judges what arrived of a cycle.
func (f *first) check(w window) {
	f.t.Helper()
	for _, flow := range f.flows {
		if !flow.forbidden { // packets that are slow are not lost
			f.eventually(arrival, func() error { return flow.lost(w) })
		}
	}
	for _, flow := range f.flows {
		if err := flow.wrong(w); err != nil {
			f.t.Errorf("%s: %v (%+v)", flow.name, err, w)
		}
	}
}

func (w *firstFlow) lost(in window) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, seq := range w.sent {
		if seq < max(in.connected, in.added) || seq > in.deleting {
			continue
		}
		n++
		if !w.arrived[seq] {
			return fmt.Errorf("%s: permitted packet of round %d is lost (%+v)", w.name, seq, in)
		}
	}
	if n == 0 {
		return fmt.Errorf("%s: nothing was sent", w.name)
	}
	return nil
}

func (w *firstFlow) wrong(in window) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, seq := range w.sent {
		arrived := w.arrived[seq]
		switch {
		case arrived && seq >= in.deleted:
			return fmt.Errorf("packet of round %d arrived, DEL had returned", seq)
		case !w.forbidden:
		case arrived && seq >= in.added:
			return fmt.Errorf("forbidden packet of round %d arrived, ADD had returned", seq)
		}
	}
	return nil
}

func percentiles(d []time.Duration) string {
	slices.Sort(d)
	at := func(p float64) time.Duration { return d[int(p*float64(len(d)-1))].Round(10 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, p99 %v, max %v", at(0.5), at(0.99), at(1))
}
