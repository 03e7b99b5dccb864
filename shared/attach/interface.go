package attach

import (
	"errors"
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

// Open begins a conversation with an interface that was known by this index and name, in the network namespace
// of the calling thread. Indexes are used again: when another interface has it by now, or none, the error
// wraps ErrGone. One that was renamed is known by what we have put on it: links, of which linkPins are the pins,
// or filters. It makes no request unless there is another name.
func Open(ifindex int, name string, linkPins ...string) (*Interface, error) {
	i, err := open(ifindex)
	if err != nil {
		return nil, err
	}
	now, err := i.c.Name(ifindex)
	if err == nil && now != name {
		err = i.known(linkPins)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("interface %s (index %d): %w", name, ifindex, asGone(err)), i.Close())
	}
	return i, nil
}

// open is Open for who knows the interface by its index alone. It does not ask whether there is one.
func open(ifindex int) (*Interface, error) {
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

// Detach takes us off one side, in whatever mode, and removes the pin of the link. Nothing there, the
// interface included, is success.
//
// When no filter is left on either side, the clsact qdisc goes as well. Nobody can say who made it;
// without filters it does nothing, whoever adds one makes the qdisc first, and to leave it would break
// the promise of an uninstall without a trace. If another adds a qdisc and a filter, and we look
// between the two, its filter is refused or lost: agents of this kind retry.
func (i *Interface) Detach(s Side, linkPin string) error {
	err := errors.Join(EndLink(linkPin, i.ifindex), endFilters(i, s.hook(), true))
	if err != nil && !errors.Is(asGone(err), ErrGone) {
		return fmt.Errorf("detach %s from interface %d: %w", s, i.ifindex, err)
	}
	return nil
}
