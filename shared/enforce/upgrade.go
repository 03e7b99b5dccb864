package enforce

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/pins"
)

// Upgrade pins the programs of this build in place of those of another one, over the same maps: rules,
// bindings and flows stay. It reports whether they differed. Interfaces run the old programs, on the same
// maps, until the next Apply with Verify replaces them, each in one step. It works both ways: an older
// build brings its own programs back.
func (e *Enforcer) Upgrade(ctx context.Context) (bool, error) {
	o, err := e.current(ctx)
	if err != nil {
		return false, err
	}
	progs, err := bpf.LoadPrograms(o.maps)
	if err != nil {
		return false, fmt.Errorf("upgrade programs: %w", err)
	}
	defer func() {
		for _, p := range progs {
			_ = p.Close()
		}
	}()
	differ := false
	for name, p := range progs {
		same, err := sameProgram(p, o.progs[name])
		if err != nil {
			return false, err
		}
		differ = differ || !same
	}
	if !differ {
		return false, nil
	}
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return false, err
	}
	for _, name := range bpf.ProgNames() {
		err = errors.Join(err, pins.PinAtomic(progs[name], e.pins.Prog(name)))
	}
	if err = errors.Join(err, held.Release()); err != nil {
		return false, fmt.Errorf("upgrade programs: %w", err)
	}
	return true, e.reopen(ctx)
}

// sameProgram compares the instructions, as the kernel's tag sums them up.
func sameProgram(a, b *ebpf.Program) (bool, error) {
	infoA, err := a.Info()
	if err != nil {
		return false, fmt.Errorf("read program info: %w", err)
	}
	infoB, err := b.Info()
	if err != nil {
		return false, fmt.Errorf("read program info: %w", err)
	}
	return infoA.Tag == infoB.Tag, nil
}

// addLaterMaps pins, beside the objects of an early build of this layout, the maps that it did not have, and
// opens them all. It fails if that is not what is missing.
func (e *Enforcer) addLaterMaps() (*objects, error) {
	frags, err := pins.LoadMap(e.pins.Map("frags"), nil)
	if err != nil {
		return nil, err
	}
	sizes := bpf.Sizes{Frags: frags.MaxEntries()}
	if err := frags.Close(); err != nil {
		return nil, err
	}
	for _, name := range bpf.LaterMaps() {
		if _, err := os.Stat(e.pins.Map(name)); err == nil {
			continue
		}
		m, err := bpf.NewMap(name, sizes)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(pins.PinAtomic(m, e.pins.Map(name)), m.Close()); err != nil {
			return nil, err
		}
	}
	return openObjects(e.pins, e.cfg.BindOnly)
}
