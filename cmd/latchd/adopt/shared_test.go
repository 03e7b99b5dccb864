package adopt

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/testenv"
)

// track has the kernel track a flow to port 53 of a client at an address and port.
func track(h *netlink.Handle, addr netip.Addr, port uint16) error {
	server := net.IPv4(198, 51, 100, 7).To4()
	err := h.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, &netlink.ConntrackFlow{FamilyType: unix.AF_INET, TimeOut: 600,
		Forward: netlink.IPTuple{SrcIP: addr.AsSlice(), DstIP: server, SrcPort: port, DstPort: 53, Protocol: unix.IPPROTO_UDP},
		Reverse: netlink.IPTuple{SrcIP: server, DstIP: addr.AsSlice(), SrcPort: 53, DstPort: port, Protocol: unix.IPPROTO_UDP}})
	if err != nil {
		return fmt.Errorf("track %s:%d: %w", addr, port, err)
	}
	return nil
}

func podAddr(i int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0x0a000200+uint32(i))
	return netip.AddrFrom4(b)
}

// Who asks together shares a dump, and gets the flows of its own addresses, among them each that was there
// when it asked. LATCH_TRACKED is how many other connections there are.
func TestSharedAnswersWhoAsksTogether(t *testing.T) {
	testenv.RequireRoot(t)
	others := 2000
	if s := os.Getenv("LATCH_TRACKED"); s != "" {
		var err error
		if others, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	const pods, rounds = 50, 3
	g := testenv.Ground(t)
	load(t, g.Node, translations) // which has the kernel track connections
	handle := func() *netlink.Handle {
		var h *netlink.Handle
		g.Node.MustDo(t, func() (err error) { h, err = netlink.NewHandle(unix.NETLINK_NETFILTER); return err })
		return h
	}
	h := handle()
	for i := range others {
		if err := track(h, podAddr(1000+i%5000), uint16(1024+i/5000)); err != nil {
			t.Fatal(err)
		}
	}
	h.Close()

	var s Shared
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range pods {
		h := handle()
		wg.Go(func() {
			defer h.Close()
			for round := range rounds {
				if err := track(h, podAddr(i), uint16(2000+round)); err != nil {
					t.Error(err)
				}
				err := g.Node.Do(func() error {
					flows, err := s.Flows([]netip.Addr{podAddr(i)})
					if err == nil && len(flows) != round+1 {
						err = fmt.Errorf("%d flows of pod %d in round %d, want %d: %v", len(flows), i, round, round+1, flows)
					}
					for _, f := range flows {
						if f.Local.Addr() != podAddr(i) {
							err = fmt.Errorf("pod %d is told of %v", i, f)
						}
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d lists with %d other connections: %d dumps, %v", pods*rounds, others, s.dumps, time.Since(begin).Round(time.Millisecond))
	if s.dumps > pods*rounds/3 {
		t.Errorf("%d dumps for %d lists", s.dumps, pods*rounds)
	}
}
