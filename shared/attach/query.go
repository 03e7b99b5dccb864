package attach

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Status is what the kernel has on one side of an interface.
type Status struct {
	Attached  bool     // the program asked about is on the hook
	Mode      Mode     // how: ModeClsact or ModeTCX; empty if nothing of ours was found
	ProgID    uint32   // the program in our place; with Attached false, another one under our handle
	Effective bool     // Attached, and every packet meets it before anything else
	Ahead     []string // what runs before it, in words
}

// Query asks the kernel where the program with this id is on one side of an interface. A link of tcx
// is known by the program alone, a filter by our handle too. Returns an error that wraps ErrGone when
// there is no such interface.
func Query(ifindex int, s Side, progID uint32) (Status, error) {
	st, err := query(ifindex, s.hook(), ebpf.ProgramID(progID))
	if err != nil {
		return Status{}, fmt.Errorf("query %s of interface %d: %w", s, ifindex, asGone(err))
	}
	return st, nil
}

func query(ifindex int, h hook, id ebpf.ProgramID) (Status, error) {
	ahead, isLink, err := tcxAhead(ifindex, h, id)
	if err != nil {
		return Status{}, err
	}
	if isLink {
		return Status{Attached: true, Mode: ModeTCX, ProgID: uint32(id), Effective: len(ahead) == 0, Ahead: ahead}, nil
	}
	found, err := filtersOf(ifindex, h)
	if err != nil {
		return Status{}, err
	}
	for _, f := range found {
		if f.ours {
			attached := f.prog == id
			return Status{
				Attached: attached, Mode: ModeClsact, ProgID: uint32(f.prog),
				Effective: attached && len(ahead) == 0, Ahead: ahead,
			}, nil
		}
		ahead = append(ahead, f.what)
	}
	return Status{}, nil
}

// Occupied names what is on one side of an interface, ours included, in the order in which it runs. It
// is for people.
func Occupied(ifindex int, s Side) ([]string, error) {
	all, _, err := tcxAhead(ifindex, s.hook(), 0)
	if err != nil {
		return nil, fmt.Errorf("list %s of interface %d: %w", s, ifindex, asGone(err))
	}
	found, err := filtersOf(ifindex, s.hook())
	if err != nil {
		return nil, fmt.Errorf("list %s of interface %d: %w", s, ifindex, asGone(err))
	}
	for _, f := range found {
		all = append(all, f.what)
	}
	return all, nil
}
