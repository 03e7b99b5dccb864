package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/pins"
)

// errForeign says that a pin of ours names an object that is not ours, or not of this set: a program of
// somebody else would be attached as if it enforced, a map of somebody else would be written and read by
// nobody.
var errForeign = errors.New("pinned object is not one of this node's set")

// readerMaps are the maps without which a program judges nothing.
var readerMaps = []string{"pod_state", "slots"}

// bindMaps are all that binding an interface takes.
var bindMaps = []string{"pod_state", "slots", "pod_state_hash", "node"}

// genuine asks the kernel whether the programs are classifiers that work on the pinned maps and no others.
// Where not all maps are open, they must work on each that is: nobody binds where no program looks. That
// they work on no others is then for whoever opens all to find out. Programs of a later build of this layout
// may have maps that this one does not know, pinned beside the others: with them this build can take over
// from it as it can from an earlier one.
func (o *objects) genuine(dir pins.Dir, all bool) error {
	names := map[ebpf.MapID]string{}
	for name, m := range o.maps {
		id, err := bpf.MapID(m)
		if err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
		names[id] = name
	}
	if all {
		if err := nameLaterMaps(dir, names); err != nil {
			return err
		}
	}
	for name, p := range o.progs {
		if err := genuineProgram(p, names, all); err != nil {
			return fmt.Errorf("pin of program %s: %w: %w", name, errForeign, err)
		}
	}
	return nil
}

// nameLaterMaps adds the maps of a later build.
func nameLaterMaps(dir pins.Dir, names map[ebpf.MapID]string) error {
	later, err := dir.OtherMaps(bpf.MapNames())
	for name, m := range later {
		id, idErr := bpf.MapID(m)
		err = errors.Join(err, idErr, m.Close())
		if _, known := names[id]; !known && idErr == nil {
			names[id] = name
		}
	}
	return err
}

func genuineProgram(p *ebpf.Program, names map[ebpf.MapID]string, all bool) error {
	if p.Type() != ebpf.SchedCLS {
		return fmt.Errorf("it is a program of type %s", p.Type())
	}
	ids, err := bpf.ProgramMaps(p)
	if err != nil {
		return err
	}
	uses, needs := map[string]bool{}, readerMaps
	if !all {
		needs = bindMaps
	}
	for _, id := range ids {
		name, ours := names[id]
		if !ours && !all {
			continue
		}
		if !ours {
			ours, err = constants(id)
		}
		switch {
		case err != nil:
			return fmt.Errorf("look at map %d: %w", id, err)
		case !ours:
			return fmt.Errorf("it works on map %d, which is not pinned", id)
		}
		uses[name] = true
	}
	for _, name := range needs {
		if !uses[name] {
			return fmt.Errorf("it does not work on the pinned %s", name)
		}
	}
	return nil
}

// constants tells whether a map holds a program's constants: those are not pinned.
func constants(id ebpf.MapID) (bool, error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return false, err
	}
	defer m.Close()
	info, err := m.Info()
	return err == nil && info.Type == ebpf.Array && strings.HasSuffix(info.Name, ".rodata"), err
}

// unusable tells whether an error of openObjects means that the pins are no set of objects of ours, and
// not that this process lacks something.
func unusable(err error) bool {
	if err == nil {
		return false
	}
	for _, lack := range []error{unix.EPERM, unix.EACCES, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.EINTR, unix.ENOSYS, ebpf.ErrNotSupported} {
		if errors.Is(err, lack) {
			return false
		}
	}
	return true
}

// expel pins the objects that this process holds over pins that are no set of ours. It reports false when
// what is pinned by now can be worked with.
func (e *Enforcer) expel(ctx context.Context, o *objects) (bool, error) {
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return false, err
	}
	defer held.Release()
	now, err := openObjects(e.pins, false)
	if err == nil {
		return false, now.close()
	}
	if !unusable(err) || errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	e.log.Error("pinning our objects again over what took their place", "error", err)
	return true, o.pin(e.pins, false)
}
