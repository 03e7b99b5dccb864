package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Our filters lie at the first priority. Another agent owns handle 1 there and deletes filters by that
// handle. Of our two handles one is in use; the other is for moving to the front.
const priority = 1

var handles = [2]uint32{0x1a7c, 0x1a7d}

// namePrefix starts the names of our filters; the side follows.
const namePrefix = "latch_"

// filter is a filter on a hook.
type filter struct {
	handle   uint32
	priority uint16
	ours     bool
	prog     ebpf.ProgramID // 0 if it is not of kind bpf
	name     string         // of kind bpf only
	what     string         // for messages
}

// filters lists those that packets meet, in the order in which they run.
func filters(ifindex int, h hook) ([]filter, error) {
	kind, err := ingressQdisc(ifindex)
	if err != nil || kind == "" {
		return nil, err
	}
	if kind != clsact && h != FromPod.hook() { // it has no hook on this side, but lists its filters there
		return nil, nil
	}
	list, err := netlinksafe.FilterList(device(ifindex), h.parent)
	if err != nil {
		return nil, fmt.Errorf("list filters: %w", err)
	}
	var found []filter
	for _, f := range list {
		a := f.Attrs()
		if a.Chain != nil && *a.Chain != 0 { // entered by a jump from chain 0 only
			continue
		}
		e := filter{handle: a.Handle, priority: a.Priority, what: fmt.Sprintf("filter %s at priority %d handle %#x", f.Type(), a.Priority, a.Handle)}
		if b, ok := f.(*netlink.BpfFilter); ok {
			e.prog = ebpf.ProgramID(b.Id)
			e.ours = a.Priority == priority && (a.Handle == handles[0] || a.Handle == handles[1])
			e.name = b.Name
			e.what += " " + b.Name
		}
		found = append(found, e)
	}
	return found, nil
}

// addFilter ends with one filter of ours, with this program, before all others.
func addFilter(ifindex int, h hook, s Side, prog *ebpf.Program) error {
	id, err := programID(prog)
	if err != nil {
		return err
	}
	if err := ensureClsact(ifindex); err != nil {
		return err
	}
	found, err := filters(ifindex, h)
	if err != nil {
		return err
	}
	var used uint32
	switch {
	case len(found) > 0 && found[0].ours && found[0].prog == id:
		used = found[0].handle
	case len(found) > 0 && found[0].ours: // in place, which keeps it first
		used = found[0].handle
		err = putFilter(ifindex, h, s, prog, used, netlink.FilterReplace)
	default: // the newest filter of a priority runs first
		if used, err = freeHandle(ifindex, h, found); err == nil {
			err = putFilter(ifindex, h, s, prog, used, netlink.FilterAdd)
		}
	}
	if err != nil {
		return err
	}
	if found, err = filters(ifindex, h); err != nil {
		return err
	}
	if len(found) == 0 || found[0].handle != used || found[0].prog != id {
		return fmt.Errorf("%w: have %s", ErrConflict, describe(found))
	}
	for _, f := range found[1:] {
		if f.ours {
			err = errors.Join(err, delFilter(ifindex, h, f.handle))
		}
	}
	return err
}

// freeHandle returns a handle of ours that is not in use. If both are, the one that runs last goes: it
// judges no packet that the other has not.
func freeHandle(ifindex int, h hook, found []filter) (uint32, error) {
	var used []uint32
	for _, f := range found {
		if f.ours {
			used = append(used, f.handle)
		}
	}
	switch len(used) {
	case 0:
		return handles[0], nil
	case 1:
		return handles[0] + handles[1] - used[0], nil
	default:
		last := used[len(used)-1]
		return last, delFilter(ifindex, h, last)
	}
}

func putFilter(ifindex int, h hook, s Side, prog *ebpf.Program, handle uint32, put func(netlink.Filter) error) error {
	err := put(&netlink.BpfFilter{
		FilterAttrs:  filterAttrs(ifindex, h, handle),
		Fd:           prog.FD(),
		Name:         namePrefix + s.String(),
		DirectAction: true,
	})
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT):
		// Priority 1 is taken by filters of another kind or protocol, or the hook is shared by devices.
		return fmt.Errorf("%w: add filter at priority %d: %w", ErrConflict, priority, err)
	case err != nil:
		return fmt.Errorf("add filter: %w", err)
	}
	return nil
}

func delFilter(ifindex int, h hook, handle uint32) error {
	err := netlink.FilterDel(&netlink.BpfFilter{FilterAttrs: filterAttrs(ifindex, h, handle)})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete filter: %w", err)
	}
	return nil
}

// endFilters removes our filters, and on request the qdisc if nothing is left below it.
func endFilters(ifindex int, h hook, qdisc bool) error {
	found, err := filters(ifindex, h)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.ours {
			err = errors.Join(err, delFilter(ifindex, h, f.handle))
		}
	}
	if err != nil || !qdisc {
		return err
	}
	return endClsact(ifindex)
}

func filterAttrs(ifindex int, h hook, handle uint32) netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: ifindex, Parent: h.parent, Priority: priority, Handle: handle, Protocol: unix.ETH_P_ALL,
	}
}

func device(ifindex int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
}

func describe(found []filter) string {
	if len(found) == 0 {
		return "no filter"
	}
	return found[0].what
}
