package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/shared/rtnl"
)

// Mode is a way to attach.
type Mode string

// Modes. ModeAuto is clsact, which attaches fast; an interface that has its link stays with it, and
// tcx is taken at once where clsact cannot be in front.
const (
	ModeAuto   Mode = "auto"
	ModeClsact Mode = "clsact"
	ModeTCX    Mode = "tcx"
)

// ParseMode checks a mode that comes from settings; empty is ModeAuto.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "":
		return ModeAuto, nil
	case ModeAuto, ModeClsact, ModeTCX:
		return m, nil
	default:
		return "", fmt.Errorf("attach mode %q: want auto, clsact or tcx", s)
	}
}

// Errors that callers branch on.
var (
	// ErrConflict says that something of others is on the hook and we cannot get in front of it.
	ErrConflict = errors.New("cannot be first on the hook")
	// ErrNotSupported says that the kernel lacks tcx.
	ErrNotSupported = ebpf.ErrNotSupported
)

// Attach puts the program first on one side of an interface. linkPin is where the link of tcx is
// pinned; in clsact mode it is where an older link is looked for.
//
// Safe to call again: with the same program it changes nothing that is in place, with another one it
// replaces in one step. It also moves us in front of what others have put there meanwhile, and ends
// what is left of the other mode. Returns an error that wraps ErrGone when there is no such interface,
// ErrConflict, or ErrNotSupported; then whatever was attached before still is.
func Attach(ifindex int, s Side, prog *ebpf.Program, m Mode, linkPin string) error {
	c, err := rtnl.Dial()
	if err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", s, ifindex, err)
	}
	defer c.Close()
	h := s.hook()
	switch m {
	case ModeAuto, "":
		err = attachAuto(c, ifindex, h, s, prog, linkPin)
	case ModeClsact:
		var ours ebpf.ProgramID
		if ours, err = linkProgram(linkPin, ifindex, h); err == nil {
			err = useClsact(c, ifindex, h, s, prog, linkPin, ours)
		}
	case ModeTCX:
		err = useTCX(c, ifindex, h, s, prog, linkPin)
	default:
		err = fmt.Errorf("mode %q", m)
	}
	if err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", s, ifindex, asGone(err))
	}
	return nil
}

// Promote moves one side of an interface from clsact to tcx: there is no moment without the program.
func Promote(ifindex int, s Side, prog *ebpf.Program, linkPin string) error {
	return Attach(ifindex, s, prog, ModeTCX, linkPin)
}

// Detach takes us off one side of an interface, in whatever mode, and removes the pin of the link.
// Nothing there, the interface included, is success.
//
// When no filter is left on either side, the clsact qdisc goes as well. Nobody can say who made it;
// without filters it does nothing, whoever adds one makes the qdisc first, and to leave it would break
// the promise of an uninstall without a trace. If another adds a qdisc and a filter, and we look
// between the two, its filter is refused or lost: agents of this kind retry.
func Detach(ifindex int, s Side, linkPin string) error {
	c, err := rtnl.Dial()
	if err != nil {
		return fmt.Errorf("detach %s from interface %d: %w", s, ifindex, err)
	}
	defer c.Close()
	err = errors.Join(endLink(linkPin, ifindex), endFilters(c, ifindex, s.hook(), true))
	if err != nil && !errors.Is(asGone(err), ErrGone) {
		return fmt.Errorf("detach %s from interface %d: %w", s, ifindex, err)
	}
	return nil
}

func attachAuto(c *rtnl.Conn, ifindex int, h hook, s Side, prog *ebpf.Program, linkPin string) error {
	ours, err := linkProgram(linkPin, ifindex, h)
	if err != nil {
		return err
	}
	if ours != 0 {
		return useTCX(c, ifindex, h, s, prog, linkPin)
	}
	err = useClsact(c, ifindex, h, s, prog, linkPin, 0)
	if errors.Is(err, ErrConflict) && HaveTCX() == nil {
		return useTCX(c, ifindex, h, s, prog, linkPin)
	}
	return err
}

// useClsact ends with our filter alone. ours is the program of our link, which it takes the place of.
func useClsact(c *rtnl.Conn, ifindex int, h hook, s Side, prog *ebpf.Program, linkPin string, ours ebpf.ProgramID) error {
	ahead, _, err := tcxAhead(ifindex, h, ours)
	if err != nil {
		return err
	}
	if len(ahead) > 0 {
		return fmt.Errorf("%w: %s runs before any filter", ErrConflict, ahead[0])
	}
	if err := addFilter(c, ifindex, h, s, prog); err != nil {
		return err
	}
	return endLink(linkPin, ifindex)
}

// useTCX ends with our link alone.
func useTCX(c *rtnl.Conn, ifindex int, h hook, s Side, prog *ebpf.Program, linkPin string) error {
	if err := HaveTCX(); err != nil {
		return err
	}
	if err := addLink(c, ifindex, h, s, prog, linkPin); err != nil {
		return err
	}
	return endFilters(c, ifindex, h, false)
}
