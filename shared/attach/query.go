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

// Query is Interface.Query for one side.
func Query(ifindex int, s Side, progID uint32) (Status, error) {
	i, err := open(ifindex)
	if err != nil {
		return Status{}, err
	}
	defer i.Close()
	return i.Query(s, progID)
}

func query(i *Interface, h hook, id ebpf.ProgramID) (Status, error) {
	ahead, isLink, err := tcxAhead(i.ifindex, h, id)
	if err != nil {
		return Status{}, err
	}
	if isLink {
		return Status{Attached: true, Mode: ModeTCX, ProgID: uint32(id), Effective: len(ahead) == 0, Ahead: ahead}, nil
	}
	if i.qdisc == nil {
		kind, err := ingressQdisc(i)
		if err != nil {
			return Status{}, err
		}
		i.qdisc = &kind
	}
	found, err := filtersBelow(i, h, *i.qdisc)
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
