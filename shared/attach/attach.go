package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Side is the packets' way over the host veth, in the words of the programs.
type Side uint8

// Sides of a host interface.
const (
	ToPod Side = iota
	FromPod
)

// Sides lists both, for loops. to_pod comes first: what is attached first is what protects the pod.
var Sides = [2]Side{ToPod, FromPod}

// String is the name of the side's program and of its pins.
func (s Side) String() string {
	if s == FromPod {
		return "from_pod"
	}
	return "to_pod"
}

// Mode is a way of attaching.
type Mode string

// Modes. ModeAuto is clsact, unless a foreign tcx program on the hook would run in front of it.
const (
	ModeAuto   Mode = "auto"
	ModeClsact Mode = "clsact"
	ModeTCX    Mode = "tcx"
)

// ParseMode checks a mode that comes from a user.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case ModeAuto, ModeClsact, ModeTCX:
		return m, nil
	}
	return "", fmt.Errorf("attach mode %q: use one of %q, %q, %q", s, ModeAuto, ModeClsact, ModeTCX)
}

var (
	// ErrGone says that the device is no longer there.
	ErrGone = errors.New("device is gone")
	// ErrNotSupported says that the kernel is too old.
	ErrNotSupported = errors.New("not supported by this kernel")
)

// Attach puts prog on one side of a device, in place of an older program of ours. It may be called
// again at any time. linkPin is where a tcx link is pinned. When the device is attached the other
// way already, the new way works before the old one ends.
func Attach(ifindex int, s Side, prog *ebpf.Program, m Mode, linkPin string) error {
	if m == ModeAuto {
		foreign, err := foreignTCX(ifindex, s, linkPin)
		if err != nil {
			return err
		}
		if m = ModeClsact; foreign {
			m = ModeTCX
		}
	}
	if m == ModeTCX {
		return Promote(ifindex, s, prog, linkPin)
	}
	return Demote(ifindex, s, prog, linkPin)
}

// Promote attaches by a tcx link, then takes away a clsact filter of ours.
func Promote(ifindex int, s Side, prog *ebpf.Program, linkPin string) error {
	if err := attachTCX(ifindex, s, prog, linkPin); err != nil {
		return err
	}
	return deleteFilter(ifindex, s)
}

// Demote attaches by a clsact filter, then ends a tcx link of ours.
func Demote(ifindex int, s Side, prog *ebpf.Program, linkPin string) error {
	if err := replaceFilter(ifindex, s, prog); err != nil {
		if errors.Is(err, ErrGone) {
			return errors.Join(err, removeLink(linkPin))
		}
		return err
	}
	return removeLink(linkPin)
}

// Detach takes our program off one side of a device. A device that is gone, or has none of our
// programs, is success; the pin of a link is removed in any case.
func Detach(ifindex int, s Side, linkPin string) error {
	return errors.Join(removeLink(linkPin), deleteFilter(ifindex, s))
}

// Status is what the kernel says of one side of a device.
type Status struct {
	Attached  bool     // the program asked for is attached by us
	Mode      Mode     // how; empty when not
	ProgID    uint32   // program that is attached in our name, whichever it is
	Effective bool     // nothing runs in front of it that could let a packet by
	Ahead     []string // what does
}

// Query asks the kernel whether the program with an id is attached to one side of a device, and
// whether it is effective there.
func Query(ifindex int, s Side, progID uint32) (Status, error) {
	links, err := queryTCX(ifindex, s)
	if err != nil {
		return Status{}, err
	}
	var ahead []string
	for _, p := range links {
		if uint32(p.ID) == progID {
			return Status{Attached: true, Mode: ModeTCX, ProgID: progID, Effective: len(ahead) == 0, Ahead: ahead}, nil
		}
		ahead = append(ahead, fmt.Sprintf("tcx program %d", p.ID))
	}
	filters, err := listFilters(ifindex, s)
	if err != nil {
		return Status{}, err
	}
	for _, f := range filters {
		if f.ours() {
			return Status{Attached: f.progID == progID, Mode: ModeClsact, ProgID: f.progID, Effective: len(ahead) == 0, Ahead: ahead}, nil
		}
		ahead = append(ahead, f.String())
	}
	return Status{Ahead: ahead}, nil
}

// foreignTCX tells whether a tcx program that is not behind our pin is on the hook.
func foreignTCX(ifindex int, s Side, linkPin string) (bool, error) {
	programs, err := queryTCX(ifindex, s)
	if err != nil || len(programs) == 0 {
		return false, err
	}
	ours, err := linkedProgram(linkPin)
	if err != nil {
		return false, err
	}
	for _, p := range programs {
		if p.ID != ours {
			return true, nil
		}
	}
	return false, nil
}

func queryTCX(ifindex int, s Side) ([]link.AttachedProgram, error) {
	result, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: s.tcxHook()})
	if errors.Is(err, link.ErrNotSupported) || errors.Is(err, ebpf.ErrNotSupported) || isUnknownHook(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("query tcx programs of device %d: %w", ifindex, gone(err))
	}
	return result.Programs, nil
}
