package bpf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sync/errgroup"

	"github.com/latch-cni/latch/bpf"
)

func readEvents(t *testing.T, rd *ringbuf.Reader) []bpf.Event {
	t.Helper()
	var events []bpf.Event
	for {
		rd.SetDeadline(time.Now().Add(20 * time.Millisecond))
		rec, err := rd.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return events
		}
		if err != nil {
			t.Fatal(err)
		}
		var e bpf.Event
		if err := binary.Read(bytes.NewReader(rec.RawSample), binary.NativeEndian, &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
}

func TestEvents(t *testing.T) {
	eachDir(t, func(t *testing.T, r *rig, f family, dir int) {
		rd, err := ringbuf.NewReader(r.Maps["events"])
		if err != nil {
			t.Fatal(err)
		}
		defer rd.Close()
		lport, rport := ends(dir)
		packets := func() {
			r.want("allow policy", dir, f.udp(dir, lport, f.peer, rport))
			r.want("allow flow", dir, f.udp(dir, lport, f.peer, rport))
			r.want("allow flow", 1-dir, f.udp(1-dir, lport, f.peer, rport))
			r.want("deny policy", dir, f.tcp(dir, lport, f.other, rport, syn))
			r.clear()
		}
		packets()
		if events := readEvents(t, rd); len(events) != 0 {
			t.Errorf("events are off, got %+v", events)
		}
		for flags, reasons := range map[uint32][]uint8{
			bpf.NodeEventsDeny:                       {0},
			bpf.NodeEventsAllow:                      {1},
			bpf.NodeEventsDeny | bpf.NodeEventsAllow: {1, 0},
		} {
			r.node().Flags = flags
			packets()
			events := readEvents(t, rd)
			if len(events) != len(reasons) {
				t.Fatalf("got %d events, want %d", len(events), len(reasons))
			}
			for i, e := range events {
				want := bpf.Event{
					Time: e.Time, Pod: podID, Ifindex: podIfindex, Slot: slotID, Generation: r.slots.At(slotID).Generation,
					Len: e.Len, Proto: 17, Dir: uint8(dir), Allow: reasons[i], Result: allowed,
				}
				remote := f.peer
				if reasons[i] == 0 {
					remote, want.Proto, want.Result = f.other, 6, denied
				}
				src, dst := netip.MustParseAddr(f.pod).As16(), netip.MustParseAddr(remote).As16()
				want.Sport, want.Dport = bpf.NetPort(uint16(lport)), bpf.NetPort(uint16(rport))
				if dir == bpf.Ingress {
					src, dst, want.Sport, want.Dport = dst, src, want.Dport, want.Sport
				}
				want.Src, want.Dst = src, dst
				if e != want {
					t.Errorf("got  %+v\nwant %+v", e, want)
				}
				if age := time.Duration(uint64(bpf.Now())<<24 - e.Time); age > time.Minute || e.Len < 40 {
					t.Errorf("event is %v old, of %d bytes", age, e.Len)
				}
			}
		}
	})
}

// What was not parsed has no addresses: not what lies at the place where they would be.
func TestEventOfUnparsedPacket(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		rd, err := ringbuf.NewReader(r.Maps["events"])
		if err != nil {
			t.Fatal(err)
		}
		defer rd.Close()
		r.node().Flags = bpf.NodeEventsDeny
		*r.pods.At(podIfindex) = bpf.PodState{}
		for _, dir := range []int{bpf.Egress, bpf.Ingress} {
			r.want("deny no-state", dir, f.open(dir, f.peer, 80))
			events := readEvents(t, rd)
			if len(events) != 1 {
				t.Fatalf("got %d events, want 1", len(events))
			}
			if e := events[0]; e.Src != [16]byte{} || e.Dst != [16]byte{} || e.Proto != 0 || e.Sport != 0 || e.Dport != 0 {
				t.Errorf("got %+v, want no addresses", e)
			}
		}
	})
}

// A full ring costs events, which are counted, and no verdicts.
func TestLostEvents(t *testing.T) {
	r := newRig(t)
	r.load(policy{onMiss: deny2})
	r.node().Flags = bpf.NodeEventsDeny
	for range 1000 {
		r.want("deny policy", bpf.Egress, v4.open(bpf.Egress, v4.peer, 80))
	}
	lost := r.counts()[bpf.CounterKey{Slot: bpf.CounterLostEvents, Dir: bpf.Egress}]
	if lost == 0 || lost > 900 {
		t.Errorf("%d events lost", lost)
	}
}

// More counters than there is room for cost counts, and no verdicts.
func TestCounterOverflow(t *testing.T) {
	r := newRig(t)
	for i := range uint32(bpf.MaxCounters) {
		_ = r.Maps["counters"].Put(bpf.CounterKey{Slot: 1 << 20, Reason: uint8(i), Dir: uint8(i >> 8)}, make([]uint64, possibleCPUs(t)))
	}
	r.load(policy{onMiss: deny2, rules: [2][]rule{1: {allPorts(v4.host)}}})
	if got := r.run(bpf.Egress, v4.open(bpf.Egress, v4.peer, 80)); !got.allow {
		t.Errorf("got %v", got)
	}
	if got := r.run(bpf.Egress, v4.open(bpf.Egress, v4.other, 80)); got.allow {
		t.Errorf("got %v", got)
	}
}

// The first packets of a reason are counted, also when two CPUs have one at once.
func TestCountersOfTwoCPUs(t *testing.T) {
	r := newRig(t)
	r.load(policy{onMiss: deny2})
	frame := v4.open(bpf.Egress, v4.peer, 80)
	r.want("deny policy", bpf.Egress, frame)
	key := slices.Collect(maps.Keys(r.counts()))[0]

	const rounds = 3000
	var met [2 * rounds]atomic.Int32 // of both CPUs, before and after each round
	meet := func(at int) {
		met[at].Add(1)
		for met[at].Load() < 2 {
			runtime.Gosched()
		}
	}
	lost := 0
	var cpus errgroup.Group
	for cpu := range 2 {
		cpus.Go(func() error {
			var errs error
			for i := range rounds {
				if cpu == 0 {
					errs = errors.Join(errs, r.Maps["counters"].Delete(key))
				}
				meet(2 * i)
				_, err := r.FromPod.Run(&ebpf.RunOptions{Data: frame, Context: &skbContext{Ifindex: podIfindex}, Repeat: 1})
				errs = errors.Join(errs, err)
				meet(2*i + 1)
				if cpu == 0 && r.counts()[key] != 2 {
					lost++
				}
			}
			return errs
		})
	}
	r.must(cpus.Wait())
	if lost > 0 {
		t.Errorf("of %d rounds with two packets each, %d did not count both", rounds, lost)
	}
}

func possibleCPUs(t *testing.T) int {
	t.Helper()
	n, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
