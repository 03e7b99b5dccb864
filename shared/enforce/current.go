package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/latch-cni/latch/shared/pins"
)

// current returns the open objects after making sure that the pins still name them. Pins that are
// gone while we hold what they named, all of it, are put back.
func (e *Enforcer) current(ctx context.Context) (*objects, error) {
	e.mu.RLock()
	o := e.objects
	e.mu.RUnlock()
	if o == nil {
		return nil, errors.New("use of a closed enforcer")
	}
	missing, changed := o.compare(e.pins)
	if len(missing) == 0 && !changed {
		return o, nil
	}
	e.log.Warn("pinned objects changed under us", "missing", missing, "replaced", changed)
	e.mu.Lock()
	e.notes = append(e.notes, fmt.Sprintf("pinned objects: %d were missing, others replaced: %v", len(missing), changed))
	e.mu.Unlock()
	if !e.cfg.BindOnly {
		if pinned, err := e.pinAgain(ctx, o, changed); err != nil || pinned {
			return o, err
		}
	}
	if err := e.reopen(ctx); err != nil {
		return nil, err
	}
	return e.takeOver(ctx)
}

// takeOver tells objects that took the place of ours what this process knows of the node.
func (e *Enforcer) takeOver(ctx context.Context) (*objects, error) {
	e.mu.Lock()
	e.replaced++
	o, node := e.objects, e.node
	e.mu.Unlock()
	if node == nil {
		return o, nil
	}
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return nil, err
	}
	return o, errors.Join(o.setNode(*node), held.Release())
}

// takeNotes returns what was mended between two sweeps.
func (e *Enforcer) takeNotes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	notes := e.notes
	e.notes = nil
	return notes
}

// Replaced counts how often somebody else's objects took the place of those that were open. Interfaces
// run the programs of the old ones, on the old maps, until the next Apply with Verify.
func (e *Enforcer) Replaced() uint64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.replaced
}

// pinAgain puts back pins that are gone or of others. It reports false when, by then, objects are pinned
// that can be worked with in place of ours.
func (e *Enforcer) pinAgain(ctx context.Context, o *objects, changed bool) (bool, error) {
	if !changed {
		var err error
		if changed, err = e.repin(ctx, o); err != nil || !changed {
			return true, err
		}
	}
	pinned, err := e.expel(ctx, o)
	if !pinned && errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return pinned, err
}

// repin puts missing pins back from the objects that this process holds. It does nothing and reports
// true when, by the time that it has the node lock, other objects are pinned.
func (e *Enforcer) repin(ctx context.Context, o *objects) (changed bool, err error) {
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return false, err
	}
	defer held.Release()
	if _, changed = o.compare(e.pins); changed {
		return true, nil
	}
	if err := pins.EnsureBPFFS(e.cfg.Bpffs); err != nil {
		return false, err
	}
	return false, o.pin(e.pins, true)
}

// compare tells which pins are gone and whether one names another object now.
func (o *objects) compare(dir pins.Dir) (missing []string, changed bool) {
	for path, ino := range *o.inodes.Load() {
		var st syscall.Stat_t
		switch err := syscall.Stat(path, &st); {
		case err != nil:
			missing = append(missing, path)
		case st.Ino != ino:
			changed = true
		}
	}
	return missing, changed
}
