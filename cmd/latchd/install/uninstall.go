package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/latch-cni/latch/shared/cleanup"
	"github.com/latch-cni/latch/shared/state"
)

// settle is how long Uninstall goes on looking for what an ADD left that had begun before the
// configuration was removed.
const settle = 3 * time.Second

// silence is how long latchd, which speaks every second, may be silent before it counts as stopped.
const silence = 5 * time.Second

// Uninstall takes Latch off the node: the configuration first, so that no ADD begins any more, then
// programs, pins and records, and the binary last. Pods go on, open. It refuses while latchd is running,
// which would begin anew. Logs stay. Safe to call again.
func Uninstall(ctx context.Context, o Options) error {
	o.Config = o.withDefaults()
	if err := errors.Join(o.Check(), o.foldersExist()); err != nil {
		return err
	}
	if err := stopped(ctx, o.StateDir); err != nil {
		return err
	}
	if err := o.removeConfig(); err != nil {
		return fmt.Errorf("take latch out of the CNI configuration: %w", err)
	}
	if err := clean(ctx, o); err != nil {
		return err
	}
	if err := errors.Join(remove(filepath.Join(o.BinDir, pluginType)), sweep(o.BinDir)); err != nil {
		return fmt.Errorf("remove plugin: %w", err)
	}
	for end := time.Now().Add(settle); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if err := clean(ctx, o); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func clean(ctx context.Context, o Options) error {
	n, err := cleanup.New(o.Bpffs, o.StateDir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.StateDir); errors.Is(err, fs.ErrNotExist) && n.Inventory().Empty() {
		return nil
	}
	return n.Run(ctx)
}

// stopped waits until latchd is silent, or has said that it stopped.
func stopped(ctx context.Context, stateDir string) error {
	for {
		st, err := state.New(stateDir).ReadStatus()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		age := time.Since(st.UpdatedAt).Abs() // the clock may have been set
		if st.Stopped || age > silence {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("latchd is running on this node, it spoke %v ago: stop it first", age.Round(time.Millisecond))
		case <-time.After(silence - age + 100*time.Millisecond):
		}
		if again, err := state.New(stateDir).ReadStatus(); err == nil && again.UpdatedAt.After(st.UpdatedAt) {
			return errors.New("latchd is running on this node: stop it first")
		}
	}
}

// removeConfig removes our own file, whatever its name, and our entry from every other: one may be left in a
// file that was edited in place, or by hand, and would name a plugin that is gone.
func (c Config) removeConfig() error {
	errs := []error{c.removeOwn(""), sweep(c.ConfDir)}
	others, err := c.files()
	errs = append(errs, err)
	for _, name := range others {
		if isList(name) {
			errs = append(errs, c.strip(name))
		}
	}
	return errors.Join(errs...)
}

// removeOwn removes all configurations of our own but one.
func (c Config) removeOwn(but string) error {
	own, err := c.own()
	errs := []error{err}
	for _, name := range own {
		if name != but {
			errs = append(errs, remove(c.path(name)))
		}
	}
	return errors.Join(errs...)
}

func (c Config) strip(name string) error {
	path, err := filepath.EvalSymlinks(c.path(name))
	if err != nil {
		return nil // leads nowhere, so it names nothing
	}
	content, err := os.ReadFile(path)
	if err != nil || !hasEntry(content) {
		return err
	}
	without, err := withoutEntry(content)
	if err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	edited, err := edit(path, content, without, st.Mode().Perm())
	if err == nil && !edited {
		err = fmt.Errorf("%s changes in this moment: try again", path)
	}
	return err
}
