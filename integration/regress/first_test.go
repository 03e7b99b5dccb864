package regress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/latch-cni/latch/shared/testenv"
)

// Ports of the senders of first packets.
const (
	outPort = 7001 // out of the pod
	inPort  = 7000 // into it
)

// first is a ground with senders that never stop. All of them share one sequence number: a round sends
// one packet of each flow.
type first struct {
	*ground
	closed bool // everything is forbidden
	ns     *testenv.NetNS
	flows  []*firstFlow
	number atomic.Uint32 // of the cycle
	seq    atomic.Int64  // of the round
	strays atomic.Int64  // forbidden packets that arrived when their cycle was over
	stop   chan struct{}
	wg     sync.WaitGroup
}

type firstFlow struct {
	name      string
	id        byte
	forbidden bool
	conn      net.PacketConn
	dst       *net.UDPAddr

	mu      sync.Mutex
	sent    []int64 // of this cycle, in order
	arrived map[int64]bool
	newest  int64
}

func newFirst(t *testing.T, o options) *first {
	t.Helper()
	return &first{ground: newGround(t, o), stop: make(chan struct{})}
}

// open starts senders and receivers around a namespace that pods come and go in.
func (f *first) open() {
	f.t.Helper()
	f.ns = testenv.New(f.t)
	out := f.ns.PacketConn(f.t, "[::]:6000")
	for family, pod := range addrs(testenv.PodA.Addr4, testenv.PodA.Addr6) {
		web, other := f.names["web"][family], f.names["other"][family]
		f.pair("out of the pod to ", web, other, func(a netip.Addr) (net.PacketConn, netip.AddrPort) {
			return out, netip.AddrPortFrom(a, outPort)
		})
		f.pair("into the pod from ", web, other, func(a netip.Addr) (net.PacketConn, netip.AddrPort) {
			return f.Ext.PacketConn(f.t, netip.AddrPortFrom(a, 5000).String()), netip.AddrPortFrom(pod, inPort)
		})
	}
	for ns, port := range map[*testenv.NetNS]int{f.ns: inPort, f.Ext: outPort} {
		c := ns.PacketConn(f.t, fmt.Sprintf("[::]:%d", port))
		_ = c.(*net.UDPConn).SetReadBuffer(16 << 20)
		go f.receive(c)
	}
	f.wg.Go(f.send)
	f.t.Cleanup(f.shut)
}

// pair adds the flow of a permitted and of a forbidden peer.
func (f *first) pair(way string, permitted, forbidden netip.Addr, ends func(netip.Addr) (net.PacketConn, netip.AddrPort)) {
	for _, peer := range []netip.Addr{permitted, forbidden} {
		conn, dst := ends(peer)
		w := &firstFlow{name: way + peer.String(), id: byte(len(f.flows)), forbidden: f.closed || peer == forbidden,
			conn: conn, dst: net.UDPAddrFromAddrPort(dst), arrived: map[int64]bool{}}
		f.flows = append(f.flows, w)
	}
}

// send sends round after round. A flow that has no way to its peer sends nothing in that round.
func (f *first) send() {
	tick := time.NewTicker(100 * time.Microsecond) // leaves the processor to the others
	defer tick.Stop()
	for b := make([]byte, 13); ; {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		seq, cycle := f.seq.Add(1), f.number.Load()
		binary.BigEndian.PutUint32(b, cycle)
		binary.BigEndian.PutUint64(b[4:], uint64(seq))
		for _, w := range f.flows {
			b[12] = w.id
			w.mu.Lock() // no cycle begins between the packet and its note
			if f.number.Load() == cycle {
				if _, err := w.conn.WriteTo(b, w.dst); err == nil {
					w.sent = append(w.sent, seq)
				}
			}
			w.mu.Unlock()
		}
	}
}

func (f *first) receive(conn net.PacketConn) {
	for b := make([]byte, 64); ; {
		n, _, err := conn.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != 13 {
			continue
		}
		w, seq := f.flows[b[12]], int64(binary.BigEndian.Uint64(b[4:]))
		w.mu.Lock()
		if binary.BigEndian.Uint32(b) == f.number.Load() {
			w.arrived[seq] = true
			w.newest = max(w.newest, seq)
		} else if w.forbidden {
			f.strays.Add(1)
		}
		w.mu.Unlock()
	}
}

func (f *first) shut() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.wg.Wait()
}

// begin starts a cycle.
func (f *first) begin() {
	for _, w := range f.flows {
		w.mu.Lock()
		w.sent = w.sent[:0]
		clear(w.arrived)
	}
	f.number.Add(1)
	for _, w := range f.flows {
		w.mu.Unlock()
	}
}

// connect makes the pod's interface. Its host end is set up by up.
func (f *first) connect() *pod {
	f.t.Helper()
	spec := testenv.PodA
	p := &pod{g: f.ground, container: fmt.Sprintf("cycle-%d", f.number.Load()), uid: "uid-a"}
	p.Pod = &testenv.Pod{NetNS: f.ns, Spec: spec, IfName: "eth0", HostName: testenv.HostVethName(spec.Namespace, spec.Name),
		Addr4: netip.MustParseAddr(spec.Addr4), Addr6: netip.MustParseAddr(spec.Addr6)}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = p.HostName
	v := &netlink.Veth{LinkAttrs: attrs, PeerName: p.IfName, PeerNamespace: netlink.NsFd(f.ns.FD())}
	if err := f.Node.Netlink.LinkAdd(v); err != nil {
		f.t.Fatalf("add veth: %v", err)
	}
	host, in := f.Node.Link(f.t, p.HostName), f.ns.Link(f.t, p.IfName)
	p.HostIfindex, p.HostMAC = host.Attrs().Index, host.Attrs().HardwareAddr
	p.Ifindex, p.MAC = in.Attrs().Index, in.Attrs().HardwareAddr
	f.ns.Up(f.t, p.IfName)
	f.ns.Addr(f.t, p.IfName, spec.Addr4+"/32", spec.Addr6+"/128")
	for _, gateway := range []struct{ addr, bits, all string }{{"169.254.1.1", "/32", "default4"}, {"fe80::1", "/128", "default6"}} {
		f.ns.Neigh(f.t, p.IfName, gateway.addr, p.HostMAC)
		f.ns.Route(f.t, gateway.addr+gateway.bits, "", p.IfName)
		f.ns.Route(f.t, gateway.all, gateway.addr, p.IfName)
	}
	return p
}

// up sets the host end up and leads the node to it. Its neighbours are permanent: resolving them would
// lose packets of its own.
func (f *first) up(p *pod) {
	f.t.Helper()
	f.Node.Up(f.t, p.HostName)
	for _, a := range []string{p.Spec.Addr4, p.Spec.Addr6} {
		f.Node.Neigh(f.t, p.HostName, a, p.MAC)
	}
	f.Node.Route(f.t, p.Spec.Addr4+"/32", "", p.HostName)
	f.Node.Route(f.t, p.Spec.Addr6+"/128", "", p.HostName)
}

// pass waits until a packet of a later round has arrived, of each flow or of each that is permitted.
func (f *first) pass(what string, permitted bool) {
	f.t.Helper()
	after := f.seq.Load() + 1
	f.eventually(arrival, func() error {
		for _, w := range f.flows {
			w.mu.Lock()
			newest := w.newest
			w.mu.Unlock()
			if newest < after && !(permitted && w.forbidden) {
				return fmt.Errorf("%s: no packet arrives %s", what, w.name)
			}
		}
		return f.reached(after)
	})
}

// reached tells whether the senders have come to a round.
func (f *first) reached(seq int64) error {
	if now := f.seq.Load(); now <= seq {
		return fmt.Errorf("senders are at round %d, not yet through %d", now, seq)
	}
	return nil
}
