package packets

import (
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// patience is how long the fate of a packet is waited for.
const patience = 2 * time.Second

// end is a place that packets leave from and arrive at: a pod, or the outside.
type end struct {
	name     string
	ns       *testenv.NetNS
	mac, via net.HardwareAddr // of the frames that it sends
	out      *testenv.Injector

	mu      sync.Mutex
	arrived map[string]int // frames by digest, of those that were sent here
	frames  int            // all that have been looked at
}

func (g *ground) newEnd(name string, ns *testenv.NetNS, dev string, via net.HardwareAddr) *end {
	g.t.Helper()
	e := &end{name: name, ns: ns, mac: ns.Link(g.t, dev).Attrs().HardwareAddr, via: via, out: ns.Injector(g.t, dev), arrived: map[string]int{}}
	ns.Capture(g.t, dev, func(f []byte) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.frames++
		d := digest(f)
		if _, awaited := e.arrived[d]; awaited {
			e.arrived[d]++
		}
		return false // nothing needs to be kept
	})
	return e
}

// await begins to count a frame and says how often it has come so far.
func (e *end) await(d string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.arrived[d]
	e.arrived[d] = n
	return n
}

// digest is what of a frame stays the same on its way: all but hardware addresses, hop count and the
// checksum of IPv4.
func digest(frame []byte) string {
	f := slices.Clone(frame[12:])
	switch binary.BigEndian.Uint16(f) {
	case 0x0800:
		if len(f) >= 2+20 {
			f[2+8], f[2+10], f[2+11] = 0, 0, 0
			if end := 2 + int(binary.BigEndian.Uint16(f[4:])); end >= 2+20 && end < len(f) {
				f = f[:end] // routers take off what pads a short frame
			}
		}
	case 0x86dd:
		if len(f) >= 2+40 {
			f[2+7] = 0
		}
	}
	return string(f)
}

// untagged is a frame as a packet socket sees it: without its outer tag.
func untagged(frame []byte) []byte {
	if t := binary.BigEndian.Uint16(frame[12:]); t != 0x8100 && t != 0x88a8 {
		return frame
	}
	return slices.Delete(slices.Clone(frame), 12, 16)
}

// fate sends a frame and says what becomes of it: "allow" when it arrives, "deny REASON" when a program
// drops it, "lost" when neither has happened.
func (g *ground) fate(from, to *end, frame []byte) string {
	g.t.Helper()
	return g.fateAs(from, to, frame, frame)
}

// fateAs is fate for a frame that is translated on its way.
func (g *ground) fateAs(from, to *end, frame, arriving []byte) string {
	g.t.Helper()
	d := digest(untagged(arriving))
	had, before := to.await(d), g.drops()
	if err := from.out.Send(testenv.WithMAC(frame, from.mac, from.via)); err != nil {
		return "cannot be sent: " + err.Error()
	}
	sent := time.Now()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) {
		reasons := newDrops(before, g.drops())
		if reasons != "" {
			time.Sleep(max(time.Millisecond, 2*time.Since(sent))) // what has arrived is not what was dropped
		}
		switch {
		case to.await(d) > had+1:
			return "arrived twice"
		case to.await(d) > had:
			return "allow"
		case reasons != "":
			return "deny " + reasons
		}
	}
	return "lost"
}

// want requires the fate of a frame: allow, deny, or deny with the reason.
func (g *ground) want(want, what string, from, to *end, frame []byte) {
	g.t.Helper()
	got := g.fate(from, to, frame)
	if got != want && !strings.HasPrefix(got, want+" ") {
		g.t.Errorf("%s (%s > %s): %s, want %s", what, from.name, to.name, got, want)
	}
}

// drops are the counters of dropped packets by reason.
func (g *ground) drops() map[uint8]uint64 {
	g.t.Helper()
	return g.counters(func(k bpf.CounterKey) bool { return k.Allow == 0 })
}

// counters sums the counters that which takes by reason.
func (g *ground) counters(which func(bpf.CounterKey) bool) map[uint8]uint64 {
	g.t.Helper()
	sums := map[uint8]uint64{}
	var key bpf.CounterKey
	var perCPU []uint64
	it := g.e.Map("counters").Iterate()
	for it.Next(&key, &perCPU) {
		if key.Slot != bpf.CounterLostEvents && which(key) {
			for _, v := range perCPU {
				sums[key.Reason] += v
			}
		}
	}
	if err := it.Err(); err != nil {
		g.t.Fatal(err)
	}
	return sums
}

func newDrops(before, after map[uint8]uint64) string {
	var reasons []string
	for _, r := range slices.Sorted(maps.Keys(after)) {
		if after[r] > before[r] {
			reasons = append(reasons, bpf.Reason(r).String())
		}
	}
	return strings.Join(reasons, " and ")
}

// flows counts the entries of the tables of flows.
func (g *ground) flows() (n int) {
	g.t.Helper()
	for _, name := range []string{"flows4", "flows6", "spill4", "spill6"} {
		var key, value []byte
		it := g.e.Map(name).Iterate()
		for it.Next(&key, &value) {
			n++
		}
		if err := it.Err(); err != nil {
			g.t.Fatal(err)
		}
	}
	return n
}

// stateless requires that a piece of a test makes no flow.
func (g *ground) stateless(what string, run func()) {
	g.t.Helper()
	before := g.flows()
	run()
	if after := g.flows(); after != before {
		g.t.Errorf("%s: %d flows more", what, after-before)
	}
}
