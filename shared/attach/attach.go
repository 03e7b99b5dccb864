package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
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

// Detach is Interface.Detach for one side of an interface that was just found.
func Detach(ifindex int, s Side, linkPin string) error {
	i, err := open(ifindex)
	if err != nil {
		return err
	}
	defer i.Close()
	return i.Detach(s, linkPin)
}

func attachAuto(i *Interface, h hook, s Side, prog *ebpf.Program, linkPin string) error {
	ours, err := linkProgram(linkPin, i.ifindex, h)
	if err != nil {
		return err
	}
	if ours != 0 {
		return useTCX(i, h, s, prog, linkPin)
	}
	err = useClsact(i, h, s, prog, linkPin, 0)
	if errors.Is(err, ErrConflict) && HaveTCX() == nil {
		return useTCX(i, h, s, prog, linkPin)
	}
	return err
}

// useClsact ends with our filter alone. ours is the program of our link, which it takes the place of.
func useClsact(i *Interface, h hook, s Side, prog *ebpf.Program, linkPin string, ours ebpf.ProgramID) error {
	ahead, _, err := tcxAhead(i.ifindex, h, ours)
	if err != nil {
		return err
	}
	if len(ahead) > 0 {
		return fmt.Errorf("%w: %s runs before any filter", ErrConflict, ahead[0])
	}
	if err := addFilter(i, h, filterName(s, linkPin), prog); err != nil {
		return err
	}
	return EndLink(linkPin, i.ifindex)
}

// useTCX ends with our link alone.
func useTCX(i *Interface, h hook, s Side, prog *ebpf.Program, linkPin string) error {
	if err := HaveTCX(); err != nil {
		return err
	}
	if err := addLink(i, h, s, prog, linkPin); err != nil {
		return err
	}
	return endFilters(i, h, false)
}
