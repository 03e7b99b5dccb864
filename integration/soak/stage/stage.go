package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/shared/view"
)

// Ports of the traffic. Policies of version v also allow Versions + v%16.
const (
	Always   = 4000
	Never    = 5000
	Versions = 6000
	lastPort = Versions + 15
)

// Addresses of the ground. Pods have 10.240.0.0/12 and fd00:10:240::/96.
var (
	NodeAddr = netip.MustParseAddr("10.224.0.1")
	ExtAddr  = netip.MustParseAddr("203.0.113.9")
	gateway  = netip.MustParseAddr("169.254.1.1")
)

// Options of a stage.
type Options struct {
	Binaries *harness.Binaries
	Latchd   []string       // more flags of latchd
	Entry    map[string]any // more keys of the plugin's entry
	Log      *slog.Logger   // nil discards
	Idle     bool           // do not start latchd
}

// Stage is a node with its outside. Methods may be called by any goroutine, but for those that start
// and stop latchd.
type Stage struct {
	Node *harness.Node
	Log  *slog.Logger

	opts Options
	dir  string // of the pods' namespaces
	ext  string
	out  *sender // from the outside to pods
	in   io.Closer
	wg   sync.WaitGroup

	mu   sync.Mutex
	pods []*Pod // by number
}

// New makes a stage. Close it.
func New(ctx context.Context, o Options) (*Stage, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	n, err := harness.NewNode(harness.Config{Name: "soak", Addrs: []netip.Addr{NodeAddr}, Binaries: o.Binaries, LatchdArgs: o.Latchd})
	if err != nil {
		return nil, err
	}
	s := &Stage{Node: n, Log: o.Log, opts: o, dir: filepath.Join(n.Dir, "sandboxes"), ext: filepath.Join(n.Dir, "ext")}
	err = errors.Join(os.Mkdir(s.dir, 0o700), makeNetNS(s.ext))
	if err == nil {
		err = s.connect()
	}
	if err == nil && !o.Idle {
		err = s.StartLatchd(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// connect makes the link to the outside, and what counts there.
func (s *Stage) connect() error {
	if err := s.link(s.ext, "up0", "eth0", ExtAddr); err != nil {
		return fmt.Errorf("connect the outside: %w", err)
	}
	err := within(s.ext, func() (err error) {
		if s.out, err = newSender(); err != nil {
			return err
		}
		s.in, err = s.count(func(d datagram) {
			if p := s.pod(d.pod); p != nil {
				p.Out.count(d.port)
			}
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("open the outside's sockets: %w", err)
	}
	return nil
}

// StartLatchd starts latchd and waits until it is ready.
func (s *Stage) StartLatchd(ctx context.Context) error {
	if err := s.Node.StartLatchd(); err != nil {
		return err
	}
	return s.Node.WaitReady(ctx, 30*time.Second)
}

// Use has the node use other binaries from now on, as an upgrade does; what runs goes on.
func (s *Stage) Use(b *harness.Binaries) {
	s.opts.Binaries = b
	s.Node.Use(b)
}

// OnNode runs f on a thread in the node's namespace.
func (s *Stage) OnNode(f func() error) error { return within(s.Node.NS.Path, f) }

// link connects a namespace that has one address with the node, as the VPC CNI does: a route to the
// address on the node, a gateway that is only a neighbour entry in the namespace.
func (s *Stage) link(path, hostName, name string, addr netip.Addr) error {
	other, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer other.Close()
	here, err := netns.GetFromPath(s.Node.NS.Path)
	if err != nil {
		return err
	}
	defer here.Close()
	node, err := netlink.NewHandleAt(here)
	if err != nil {
		return err
	}
	defer node.Close()
	inside, err := netlink.NewHandleAt(other)
	if err != nil {
		return err
	}
	defer inside.Close()
	err = node.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: hostName}, PeerName: name, PeerNamespace: netlink.NsFd(other)})
	if err != nil {
		return fmt.Errorf("make veth %s: %w", hostName, err)
	}
	host, errHost := node.LinkByName(hostName)
	end, errEnd := inside.LinkByName(name)
	lo, errLo := inside.LinkByName("lo")
	if err := errors.Join(errHost, errEnd, errLo); err != nil {
		return err
	}
	return errors.Join(
		inside.AddrAdd(end, &netlink.Addr{IPNet: hostNet(addr)}),
		inside.LinkSetUp(lo), inside.LinkSetUp(end), node.LinkSetUp(host),
		inside.NeighAdd(neighbour(end, gateway, host)),
		inside.RouteAdd(&netlink.Route{LinkIndex: end.Attrs().Index, Dst: hostNet(gateway), Scope: netlink.SCOPE_LINK}),
		inside.RouteAdd(&netlink.Route{LinkIndex: end.Attrs().Index, Gw: gateway.AsSlice()}),
		node.NeighAdd(neighbour(host, addr, end)),
		node.RouteAdd(&netlink.Route{LinkIndex: host.Attrs().Index, Dst: hostNet(addr), Scope: netlink.SCOPE_LINK}),
	)
}

// View opens the node's kernel objects and records for reading.
func (s *Stage) View() (*view.Node, error) { return view.Open(s.Node.Bpffs, s.Node.StateDir) }

// Close takes everything down. What DEL and cleanup leave behind is an error.
func (s *Stage) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // an interrupted run cleans up, too
	var errs []error
	for _, p := range s.all() {
		errs = append(errs, p.Drop())
	}
	if s.in != nil {
		errs = append(errs, s.in.Close())
	}
	if s.out != nil {
		errs = append(errs, s.out.Close())
	}
	errs = append(errs, s.dropLink("up0"))
	s.wg.Wait()
	if _, err := os.Stat(s.ext); err == nil {
		errs = append(errs, removeNetNS(s.ext))
	}
	return errors.Join(append(errs, s.Node.Stop(ctx))...)
}

func (s *Stage) dropLink(name string) error {
	return s.OnNode(func() error {
		l, err := netlink.LinkByName(name)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil
		}
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
}

func (s *Stage) pod(number uint32) *Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(number) >= len(s.pods) {
		return nil
	}
	return s.pods[number]
}

func (s *Stage) all() []*Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Pod(nil), s.pods...)
}
