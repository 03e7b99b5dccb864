package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Our filter's place. Priority 1 is the front; the node agent of EKS uses priority 1 and handle 1, and
// its clean-up deletes that handle only. Within one priority the newest filter runs first.
const (
	filterPriority = 1
	filterHandle   = 0x1a7c
)

// filter is one cls_bpf filter, or another one that could decide in front of it.
type filter struct {
	priority uint16
	handle   uint32
	name     string
	kind     string
	progID   uint32
}

func (f filter) ours() bool {
	return f.kind == "bpf" && f.priority == filterPriority && f.handle == filterHandle
}

func (f filter) String() string {
	return fmt.Sprintf("%s filter %q, priority %d, handle %#x", f.kind, f.name, f.priority, f.handle)
}

// replaceFilter adds our filter or replaces its program in place.
func replaceFilter(ifindex int, s Side, prog *ebpf.Program) error {
	if err := ensureClsact(ifindex); err != nil {
		return err
	}
	f := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex,
			Parent:    s.clsactParent(),
			Handle:    filterHandle,
			Priority:  filterPriority,
			Protocol:  unix.ETH_P_ALL,
		},
		Fd:           prog.FD(),
		Name:         "latch_" + s.String(),
		DirectAction: true,
	}
	if err := netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("replace clsact filter of device %d: %w", ifindex, gone(err))
	}
	return moveToFront(ifindex, s, f)
}

// moveToFront puts our filter before others of its priority: one that was added later runs first.
// The filter is added anew under a second handle for the moment, so that one of ours always runs.
func moveToFront(ifindex int, s Side, f *netlink.BpfFilter) error {
	all, err := listFilters(ifindex, s)
	if err != nil || len(all) == 0 || all[0].ours() {
		return err
	}
	if all[0].priority != filterPriority {
		return nil // cannot be: no priority is before 1
	}
	standIn := *f
	standIn.Handle = filterHandle + 1
	if err := netlink.FilterReplace(&standIn); err != nil {
		return fmt.Errorf("add stand-in filter to device %d: %w", ifindex, gone(err))
	}
	if err := netlink.FilterDel(f); err != nil {
		return fmt.Errorf("move filter of device %d to the front: %w", ifindex, gone(err))
	}
	if err := netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("move filter of device %d to the front: %w", ifindex, gone(err))
	}
	if err := netlink.FilterDel(&standIn); err != nil {
		return fmt.Errorf("delete stand-in filter of device %d: %w", ifindex, gone(err))
	}
	return nil
}

func ensureClsact(ifindex int) error {
	q := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: ifindex,
			Handle:    netlink.MakeHandle(0xffff, 0),
			Parent:    netlink.HANDLE_CLSACT,
		},
		QdiscType: "clsact",
	}
	err := netlink.QdiscAdd(q)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("add clsact qdisc to device %d: %w", ifindex, gone(err))
	}
	return nil
}

// listFilters lists the filters of one side in the order in which they run.
func listFilters(ifindex int, s Side) ([]filter, error) {
	l := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
	all, err := netlinksafe.FilterList(l, s.clsactParent())
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil, nil // no clsact qdisc
	}
	if err != nil {
		return nil, fmt.Errorf("list filters of device %d: %w", ifindex, gone(err))
	}
	var filters []filter
	for _, f := range all {
		a := f.Attrs()
		if a.Handle == 0 {
			continue // the head of a priority, not a filter
		}
		one := filter{priority: a.Priority, handle: a.Handle, kind: f.Type()}
		if b, ok := f.(*netlink.BpfFilter); ok {
			one.name, one.progID = b.Name, uint32(b.Id)
		}
		filters = append(filters, one)
	}
	return filters, nil
}

// deleteFilter deletes our filter, and the clsact qdisc when no filter is left on either side: it is
// then of no use to anybody. Absent is fine.
func deleteFilter(ifindex int, s Side) error {
	f := &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: ifindex,
		Parent:    s.clsactParent(),
		Handle:    filterHandle,
		Priority:  filterPriority,
		Protocol:  unix.ETH_P_ALL,
	}}
	filters, err := listFilters(ifindex, s)
	if err != nil {
		return ignoreGone(err)
	}
	found := false
	for _, have := range filters {
		found = found || have.ours()
	}
	if !found {
		return nil
	}
	if err := netlink.FilterDel(f); err != nil && !errors.Is(err, unix.ENOENT) {
		return ignoreGone(fmt.Errorf("delete clsact filter of device %d: %w", ifindex, gone(err)))
	}
	for _, side := range Sides {
		left, err := listFilters(ifindex, side)
		if err != nil || len(left) > 0 {
			return ignoreGone(err)
		}
	}
	q := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
	if err := netlink.QdiscDel(q); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return ignoreGone(fmt.Errorf("delete clsact qdisc of device %d: %w", ifindex, gone(err)))
	}
	return nil
}

func ignoreGone(err error) error {
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}
