package attach

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/shared/rtnl"
)

// Interface is a network interface and one conversation with the kernel about it: to attach both sides, or to
// ask about both, takes fewer requests than twice the same for one. Requests about traffic control wait for
// the kernel's rtnl lock, which whoever makes or ends interfaces on the node holds for milliseconds.
//
// It is for one goroutine and one errand: what was found out at its beginning is not asked for again.
type Interface struct {
	ifindex int
	c       *rtnl.Conn
	bare    map[hook]bool // below the clsact that Attach made: nothing was put there yet
	qdisc   *string       // the kind that Query found in the place of clsact, for the other side
}

// Open begins a conversation, in the network namespace of the calling thread. It does not ask the kernel
// whether there is such an interface.
func Open(ifindex int) (*Interface, error) {
	c, err := rtnl.Dial()
	if err != nil {
		return nil, fmt.Errorf("interface %d: %w", ifindex, err)
	}
	return &Interface{ifindex: ifindex, c: c}, nil
}

// Close ends the conversation. What is attached stays.
func (i *Interface) Close() error { return i.c.Close() }

// Attach puts the program first on one side of the interface. linkPin is where the link of tcx is pinned;
// in clsact mode it is where an older link is looked for.
//
// Safe to call again: with the same program it changes nothing that is in place, with another one it
// replaces in one step. It also moves us in front of what others have put there meanwhile, and ends
// what is left of the other mode, in this order: there is no moment without the program. Returns an error that wraps ErrGone when there is no such interface,
// ErrConflict, or ErrNotSupported; then whatever was attached before still is.
func (i *Interface) Attach(s Side, prog *ebpf.Program, m Mode, linkPin string) (err error) {
	i.qdisc = nil
	h := s.hook()
	switch m {
	case ModeAuto, "":
		err = attachAuto(i, h, s, prog, linkPin)
	case ModeClsact:
		var ours ebpf.ProgramID
		if ours, err = linkProgram(linkPin, i.ifindex, h); err == nil {
			err = useClsact(i, h, s, prog, linkPin, ours)
		}
	case ModeTCX:
		err = useTCX(i, h, s, prog, linkPin)
	default:
		err = fmt.Errorf("mode %q", m)
	}
	if err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", s, i.ifindex, asGone(err))
	}
	return nil
}

// Query asks the kernel where the program with this id is on one side of the interface. A link of tcx
// is known by the program alone, a filter by our handle too. Returns an error that wraps ErrGone when
// there is no such interface.
func (i *Interface) Query(s Side, progID uint32) (Status, error) {
	st, err := query(i, s.hook(), ebpf.ProgramID(progID))
	if err != nil {
		return Status{}, fmt.Errorf("query %s of interface %d: %w", s, i.ifindex, asGone(err))
	}
	return st, nil
}
