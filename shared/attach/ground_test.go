package attach

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// ground is a node and a pod, joined by a veth, that send each other UDP.
type ground struct {
	t         testing.TB
	node, pod *testenv.NetNS
	ifindex   int
	pins      pins.Dir
}

func newGround(t testing.TB) *ground {
	t.Helper()
	g := &ground{t: t, node: testenv.New(t), pod: testenv.New(t), pins: pins.New(testenv.BPFFS(t))}
	if err := g.pins.Make(); err != nil {
		t.Fatal(err)
	}
	hostEnd, podEnd := testenv.Veth(t, g.node, "host0", g.pod, "eth0")
	g.ifindex = hostEnd.Attrs().Index
	g.node.Addr(t, "host0", "10.0.0.1/24")
	g.pod.Addr(t, "eth0", "10.0.0.2/24")
	g.node.Neigh(t, "host0", "10.0.0.2", podEnd.Attrs().HardwareAddr)
	g.pod.Neigh(t, "eth0", "10.0.0.1", hostEnd.Attrs().HardwareAddr)
	return g
}

func (g *ground) pin(s Side) string { return g.pins.Link(1, s.String()) }

// in runs f in the node's namespace, as every caller of the package does.
func (g *ground) in(f func() error) error { return g.node.Do(f) }

func (g *ground) attach(s Side, p *ebpf.Program, m Mode) {
	g.t.Helper()
	if err := g.in(func() error { return Attach(g.ifindex, s, p, m, g.pin(s)) }); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) detach(s Side) {
	g.t.Helper()
	if err := g.in(func() error { return Detach(g.ifindex, s, g.pin(s)) }); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) query(s Side, p *ebpf.Program) Status {
	g.t.Helper()
	var st Status
	err := g.in(func() (err error) {
		st, err = Query(g.ifindex, s, uint32(id(g.t, p)))
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return st
}

// wantEffective requires the program in front, in this mode.
func (g *ground) wantEffective(s Side, p *ebpf.Program, m Mode) {
	g.t.Helper()
	st := g.query(s, p)
	if !st.Attached || !st.Effective || st.Mode != m || st.ProgID != uint32(id(g.t, p)) || len(st.Ahead) != 0 {
		g.t.Errorf("%s: want program %d first by %s, have %+v", s, id(g.t, p), m, st)
	}
}

func qdiscKind(ifindex int) (string, error) {
	i, err := open(ifindex)
	if err != nil {
		return "", err
	}
	defer i.Close()
	return ingressQdisc(i)
}

func clsactOf(ifindex int) netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  clsact,
	}
}

// foreignFilter puts a program of somebody else on the hook.
func (g *ground) foreignFilter(s Side, p *ebpf.Program, prio uint16, handle uint32) {
	g.t.Helper()
	err := g.in(func() error {
		if err := netlink.QdiscAdd(clsactOf(g.ifindex)); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		return netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: g.ifindex, Parent: s.hook().parent, Priority: prio, Handle: handle, Protocol: unix.ETH_P_ALL},
			Fd:          p.FD(), Name: "foreign", DirectAction: true,
		})
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

// foreignLink puts a program of somebody else first on the hook, by tcx.
func (g *ground) foreignLink(s Side, p *ebpf.Program) link.Link {
	g.t.Helper()
	var l link.Link
	err := g.in(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: g.ifindex, Program: p, Attach: s.hook().tcx, Anchor: link.Head()})
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = l.Close() })
	return l
}

// send sends datagrams on one side and returns how many arrived. It waits for as many as are wanted
// for long, and then a moment for those that should not come.
func (g *ground) send(s Side, count, want int) int {
	g.t.Helper()
	from, to, src, dst := g.node, g.pod, "10.0.0.1", "10.0.0.2"
	if s == FromPod {
		from, to, src, dst = to, from, dst, src
	}
	in := to.PacketConn(g.t, dst+":0")
	defer in.Close()
	out := from.PacketConn(g.t, src+":0")
	defer out.Close()
	for range count {
		if _, err := out.WriteTo([]byte("x"), in.LocalAddr()); err != nil {
			g.t.Fatal(err)
		}
	}
	for arrived, b := 0, make([]byte, 16); ; arrived++ {
		patience := 5 * time.Second
		if arrived >= want {
			patience = 50 * time.Millisecond // a veth delivers at once
		}
		_ = in.SetReadDeadline(time.Now().Add(patience))
		if _, _, err := in.ReadFrom(b); err != nil {
			return arrived
		}
	}
}

func requireTCX(t testing.TB) {
	t.Helper()
	testenv.RequireRoot(t)
	testenv.RequireKernel(t, testenv.TCXVersion, HaveTCX())
}

// modes runs a test in both ways of attaching.
func modes(t *testing.T, f func(*testing.T, *ground, Mode)) {
	for _, m := range []Mode{ModeClsact, ModeTCX} {
		t.Run(string(m), func(t *testing.T) {
			testenv.RequireRoot(t)
			if m == ModeTCX {
				requireTCX(t)
			}
			f(t, newGround(t), m)
		})
	}
}

// pinned lists the pins of links.
func (g *ground) pinned() []string {
	g.t.Helper()
	paths, err := g.pins.Links()
	if err != nil {
		g.t.Fatal(err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names
}

// wantBare requires that nothing of anybody is on the interface.
func (g *ground) wantBare() {
	g.t.Helper()
	err := g.in(func() error {
		kind, err := qdiscKind(g.ifindex)
		if err != nil || kind != "" {
			return fmt.Errorf("qdisc %q: %w", kind, err)
		}
		for _, s := range Sides {
			list, err := Occupied(g.ifindex, s)
			if err != nil || len(list) != 0 {
				return fmt.Errorf("%s: %v, %w", s, list, err)
			}
		}
		return nil
	})
	if err != nil {
		g.t.Error(err)
	}
	if left := g.pinned(); len(left) != 0 {
		g.t.Errorf("pins are left: %v", left)
	}
}

// Attach is Interface.Attach for one side.
func Attach(ifindex int, s Side, prog *ebpf.Program, m Mode, linkPin string) error {
	i, err := open(ifindex)
	if err != nil {
		return err
	}
	defer i.Close()
	return i.Attach(s, prog, m, linkPin)
}
