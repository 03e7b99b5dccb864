package attach

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/pins"
)

// HaveTCX returns nil if the kernel has tcx, else an error that wraps ErrNotSupported.
var HaveTCX = sync.OnceValue(func() error {
	const loopback = 1 // in every network namespace
	_, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: FromPod.hook().tcx})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, ErrNotSupported) {
		return fmt.Errorf("tcx links (kernel 6.6): %w", ErrNotSupported)
	}
	if err != nil {
		return fmt.Errorf("look for tcx: %w", err)
	}
	return nil
})

// attached is our link on a hook.
type attached struct {
	link.Link
	prog ebpf.ProgramID
}

// openLink opens the pinned link. It returns nil if there is none, if it has lost its device, or if the
// place of the pin was taken by something else: nothing but ours belongs there. A link of another device
// is an error: whose pin this is was mistaken, and that device stays enforced.
func openLink(pin string, ifindex int, h hook) (*attached, error) {
	if pin == "" {
		return nil, nil
	}
	l, err := pins.LoadLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, pins.ErrKind) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := l.Info()
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("link %s: %w", pin, err)
	}
	t := info.TCX()
	if t != nil && t.Ifindex == 0 {
		_ = l.Close()
		return nil, nil
	}
	if t == nil || int(t.Ifindex) != ifindex || ebpf.AttachType(t.AttachType) != h.tcx {
		_ = l.Close()
		return nil, fmt.Errorf("link %s is not of this hook: %+v", pin, t)
	}
	return &attached{Link: l, prog: info.Program}, nil
}

// linkProgram returns the program of our link, 0 if there is no live link.
func linkProgram(pin string, ifindex int, h hook) (ebpf.ProgramID, error) {
	l, err := openLink(pin, ifindex, h)
	if err != nil || l == nil {
		return 0, err
	}
	defer l.Close()
	return l.prog, nil
}

// addLink ends with our link, with this program, before all others, pinned.
func addLink(i *Interface, h hook, s Side, prog *ebpf.Program, pin string) error {
	if pin == "" {
		return errors.New("tcx needs a place to pin its link")
	}
	id, err := programID(prog)
	if err != nil {
		return err
	}
	l, err := openLink(pin, i.ifindex, h)
	if err != nil {
		return err
	}
	if l == nil {
		return newLink(i, h, s, prog, id, pin)
	}
	defer l.Close()
	if l.prog != id {
		if err := l.Update(prog); err != nil {
			return fmt.Errorf("update link %s: %w", pin, err)
		}
	}
	ahead, _, err := tcxAhead(i.ifindex, h, id)
	if err != nil || len(ahead) == 0 {
		return err
	}
	// A program cannot be on one hook twice, so the link must leave before it comes to the front. A
	// filter stands in for it; useTCX removes it.
	if err := addFilter(i, h, filterName(s, pin), prog); err != nil {
		return fmt.Errorf("%w: behind %s, and nothing can stand in for the link: %w", ErrConflict, ahead[0], err)
	}
	if err := l.Detach(); err != nil {
		return fmt.Errorf("detach link %s: %w", pin, err)
	}
	return newLink(i, h, s, prog, id, pin)
}

// newLink makes a link at the head, and pins it in place of a dead one.
func newLink(i *Interface, h hook, s Side, prog *ebpf.Program, id ebpf.ProgramID, pin string) error {
	l, err := link.AttachTCX(link.TCXOptions{Interface: i.ifindex, Program: prog, Attach: h.tcx, Anchor: link.Head()})
	known := errors.Is(err, unix.EEXIST)
	if known {
		l, err = linkOf(i.ifindex, h, id)
	}
	if err != nil {
		return err
	}
	defer l.Close() // without the pin this is the end of the link
	o, ok := l.(pins.Object)
	if !ok {
		return fmt.Errorf("link of type %T cannot be pinned", l)
	}
	if err := pins.PinAtomic(o, pin); err != nil {
		return err
	}
	if known { // wherever it is in the list
		return addLink(i, h, s, prog, pin)
	}
	ahead, _, err := tcxAhead(i.ifindex, h, id)
	if err == nil && len(ahead) > 0 {
		err = fmt.Errorf("%w: behind %s", ErrConflict, ahead[0])
	}
	return err
}

// linkOf finds the link by which the program is on the hook already: its pin has another name.
func linkOf(ifindex int, h hook, id ebpf.ProgramID) (link.Link, error) {
	list, err := tcxPrograms(ifindex, h)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if lid, ok := p.LinkID(); ok && p.ID == id {
			return link.NewFromID(lid)
		}
	}
	return nil, fmt.Errorf("program %d is attached without a link: %w", id, unix.EEXIST)
}

// EndLink takes the link off its device, which has to be this one if it is still there, and removes its
// pin. Safe to call again.
func EndLink(pin string, ifindex int) error {
	if pin == "" {
		return nil
	}
	l, err := pins.LoadLink(pin, nil)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, pins.ErrKind):
		return pins.Remove(pin)
	case err != nil:
		return err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return fmt.Errorf("link %s: %w", pin, err)
	}
	if t := info.TCX(); t == nil || t.Ifindex != 0 && int(t.Ifindex) != ifindex {
		return fmt.Errorf("link %s is not of this hook: %+v", pin, t)
	}
	// Not by the end of the pin alone: another process may hold the link open.
	if err := l.Detach(); err != nil && !errors.Is(asGone(err), ErrGone) {
		return fmt.Errorf("detach link %s: %w", pin, err)
	}
	return pins.Remove(pin)
}

// tcxPrograms lists the programs of the hook in the order in which they run.
func tcxPrograms(ifindex int, h hook) ([]link.AttachedProgram, error) {
	r, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: h.tcx})
	if err != nil && HaveTCX() != nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tcx: %w", err)
	}
	return r.Programs, nil
}

// tcxAhead names the programs that run before ours: all of them if ours is not there.
func tcxAhead(ifindex int, h hook, ours ebpf.ProgramID) (ahead []string, there bool, err error) {
	list, err := tcxPrograms(ifindex, h)
	if err != nil {
		return nil, false, err
	}
	for _, p := range list {
		if p.ID == ours {
			return ahead, true, nil
		}
		ahead = append(ahead, fmt.Sprintf("tcx program %s (id %d)", programName(p.ID), p.ID))
	}
	return ahead, false, nil
}

func programID(p *ebpf.Program) (ebpf.ProgramID, error) { return bpf.ProgramID(p) }

func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "unknown"
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return "unknown"
	}
	return info.Name
}
