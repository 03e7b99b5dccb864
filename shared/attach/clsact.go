package attach

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Our filters lie at the first priority. Another agent owns handle 1 there and deletes filters by that
// handle. Of our two handles one is in use; the other is for moving to the front.
const priority = 1

var handles = [2]uint32{0x1a7c, 0x1a7d}

// filterName is the name of our filter on one side: by that of the link's pin, which tells whose interface it is.
// Filters of early builds tell the side only.
func filterName(s Side, linkPin string) string {
	if linkPin == "" {
		return "latch_" + s.String()
	}
	return "latch_" + filepath.Base(linkPin)
}

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
func filters(i *Interface, h hook) ([]filter, error) {
	kind, err := ingressQdisc(i)
	if err != nil {
		return nil, err
	}
	return filtersBelow(i, h, kind)
}

// filtersBelow lists the filters of a hook, given the kind of the qdisc.
func filtersBelow(i *Interface, h hook, kind string) ([]filter, error) {
	if kind == "" {
		return nil, nil
	}
	if kind != clsact && h != FromPod.hook() { // it has no hook on this side, but lists its filters there
		return nil, nil
	}
	return list(i, h)
}

// list lists the filters of a hook that is there. A hook that is not there has none.
func list(i *Interface, h hook) ([]filter, error) {
	msgs, err := i.c.Dump(unix.RTM_GETTFILTER, below(i.ifindex, h))
	if err != nil {
		return nil, fmt.Errorf("list filters: %w", err)
	}
	var found []filter
	for _, m := range msgs {
		f, runs, err := parseFilter(m)
		if err != nil {
			return nil, fmt.Errorf("list filters: %w", err)
		}
		if runs {
			found = append(found, f)
		}
	}
	return found, nil
}

// addFilter ends with one filter of ours, with this program, before all others.
func addFilter(i *Interface, h hook, name string, prog *ebpf.Program) error {
	id, err := programID(prog)
	if err != nil {
		return err
	}
	if err := ensureClsact(i); err != nil {
		return err
	}
	bare := i.bare[h]
	delete(i.bare, h)
	var found []filter
	if !bare {
		if found, err = list(i, h); err != nil {
			return err
		}
	}
	var used uint32
	switch {
	case len(found) == 0: // nobody to be behind
		return putFilter(i, h, name, prog, handles[0], unix.NLM_F_EXCL)
	case found[0].ours && found[0].prog == id:
		used = found[0].handle
	case found[0].ours: // in place, which keeps it first
		used = found[0].handle
		err = putFilter(i, h, name, prog, used, 0)
	default: // the newest filter of a priority runs first
		if used, err = freeHandle(i, h, found); err == nil {
			err = putFilter(i, h, name, prog, used, unix.NLM_F_EXCL)
		}
	}
	if err != nil {
		return err
	}
	if found, err = list(i, h); err != nil {
		return err
	}
	if len(found) == 0 || found[0].handle != used || found[0].prog != id {
		return fmt.Errorf("%w: have %s", ErrConflict, describe(found))
	}
	for _, f := range found[1:] {
		if f.ours {
			err = errors.Join(err, delFilter(i, h, priority, f.handle))
		}
	}
	return err
}

// freeHandle returns a handle of ours that is not in use. If both are, the one that runs last goes: it
// judges no packet that the other has not.
func freeHandle(i *Interface, h hook, found []filter) (uint32, error) {
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
		return last, delFilter(i, h, priority, last)
	}
}

// putFilter adds a filter, with NLM_F_EXCL only where there is none of this handle.
func putFilter(i *Interface, h hook, name string, prog *ebpf.Program, handle uint32, flags uint16) error {
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_BPF_FD, nl.Uint32Attr(uint32(prog.FD())))
	options.AddRtAttr(nl.TCA_BPF_NAME, nl.ZeroTerminated(name))
	options.AddRtAttr(nl.TCA_BPF_FLAGS, nl.Uint32Attr(nl.TCA_BPF_FLAG_ACT_DIRECT))
	_, err := i.c.Do(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|flags, place(i.ifindex, h, priority, handle), kindBPF(), options)
	runtime.KeepAlive(prog)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT):
		// Priority 1 is taken by filters of another kind or protocol, or the hook is shared by devices.
		return fmt.Errorf("%w: add filter at priority %d: %w", ErrConflict, priority, err)
	case err != nil:
		return fmt.Errorf("add filter: %w", err)
	}
	return nil
}

func delFilter(i *Interface, h hook, priority uint16, handle uint32) error {
	_, err := i.c.Do(unix.RTM_DELTFILTER, 0, place(i.ifindex, h, priority, handle), kindBPF())
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete filter: %w", err)
	}
	return nil
}

// endFilters removes our filters, and on request the qdisc if nothing is left below it.
func endFilters(i *Interface, h hook, qdisc bool) error {
	found, err := filters(i, h)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.ours {
			err = errors.Join(err, delFilter(i, h, priority, f.handle))
		}
	}
	if err != nil || !qdisc {
		return err
	}
	return endClsact(i)
}

func describe(found []filter) string {
	if len(found) == 0 {
		return "no filter"
	}
	return found[0].what
}
