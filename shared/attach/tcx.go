package attach

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/latch-cni/latch/shared/pins"
)

// attachTCX puts prog at the head of the hook by a pinned link, or updates the link that is pinned
// there already in one atomic step. A link that is not at the head any more is replaced by one that
// is, which works before the older one ends.
func attachTCX(ifindex int, s Side, prog *ebpf.Program, pin string) error {
	old, err := openLink(pin)
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
		inPlace, err := isHead(ifindex, s, old)
		if err != nil {
			return err
		}
		if inPlace {
			if err := old.Update(prog); err != nil {
				return fmt.Errorf("update tcx link %s: %w", pin, gone(err))
			}
			return nil
		}
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: prog, Attach: s.tcxHook(), Anchor: link.Head()})
	if errors.Is(err, os.ErrExist) {
		// The kernel takes a program once for each hook.
		return fmt.Errorf("attach tcx link at the head of device %d: the program is attached there already, behind another one", ifindex)
	}
	if errors.Is(err, ebpf.ErrNotSupported) || isUnknownHook(err) {
		return fmt.Errorf("attach tcx link (kernel 6.6 or newer): %w", ErrNotSupported)
	}
	if err != nil {
		return fmt.Errorf("attach tcx link to device %d: %w", ifindex, gone(err))
	}
	defer l.Close()
	o, ok := l.(pins.Object)
	if !ok {
		return fmt.Errorf("pin tcx link of device %d: %T has no file descriptor", ifindex, l)
	}
	return pins.PinAtomic(o, pin)
}

// isHead tells whether a link of ours is on this device and first in its list.
func isHead(ifindex int, s Side, l link.Link) (bool, error) {
	info, err := l.Info()
	if err != nil {
		return false, fmt.Errorf("read tcx link: %w", err)
	}
	if tcx := info.TCX(); tcx == nil || int(tcx.Ifindex) != ifindex {
		return false, nil
	}
	programs, err := queryTCX(ifindex, s)
	if err != nil {
		return false, err
	}
	return len(programs) > 0 && programs[0].ID == info.Program, nil
}

// openLink opens a pinned link; nil when there is none.
func openLink(pin string) (link.Link, error) {
	l, err := pins.LoadLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return l, err
}

// linkedProgram is the id of the program behind a pinned link; 0 when there is none.
func linkedProgram(pin string) (ebpf.ProgramID, error) {
	l, err := openLink(pin)
	if err != nil || l == nil {
		return 0, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("read tcx link %s: %w", pin, err)
	}
	return info.Program, nil
}

// removeLink ends a pinned link. Absent is fine. It ends with its pin: nobody else holds it.
func removeLink(pin string) error { return pins.Remove(pin) }
