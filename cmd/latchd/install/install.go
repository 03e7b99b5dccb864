package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/adopt"
	"github.com/latch-cni/latch/shared/foreign"
	"github.com/latch-cni/latch/shared/state"
)

// Options of Install.
type Options struct {
	Config
	BinDir       string // of CNI plugins
	Plugin       string // our binary to copy there; empty = the one beside this program
	Bpffs        string
	PrimaryLater bool // wait for the named primary also where others are
	TakeOver     bool // install beside another policy agent: latchd takes over from it
}

// Install puts the plugin on the node: the binary first, then the configuration that names it. It
// refuses where another policy agent is in force, and what cannot be right, before it writes anything. Without
// a primary CNI it leaves a configuration that refuses every ADD until latchd finds one, and likewise, with an
// error, if the primary's cannot be used. Safe to call again.
func Install(o Options) error {
	o.Config = o.withDefaults()
	if err := o.Check(); err != nil {
		return err
	}
	if !o.TakeOver {
		agent, err := foreign.Find(o.Bpffs)
		if err := errors.Join(err, foreign.Refuse(agent)); err != nil {
			return err
		}
	}
	if err := o.foldersExist(); err != nil {
		return err
	}
	if err := o.fits(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.ConfDir, 0o755); err != nil {
		return fmt.Errorf("make folder of CNI configurations: %w", err)
	}
	if err := o.arrive(); err != nil {
		return fmt.Errorf("see whether pods run already: %w", err)
	}
	if err := errors.Join(sweep(o.ConfDir), sweep(o.BinDir)); err != nil {
		return fmt.Errorf("sweep what a killed process left: %w", err)
	}
	if err := o.copyPlugin(); err != nil {
		return err
	}
	f := NewFollower(o.Config)
	f.grace = 0
	err := f.Look()
	if errors.Is(err, errNoPrimary) && !o.InPlace {
		o.Log.Warn("no primary CNI yet: ADD is refused until there is one", "folder", o.ConfDir)
		return nil
	}
	return err
}

// foldersExist returns an error if a folder does not, which is a typo but for the usual one, as on a new node.
func (o Options) foldersExist() error {
	check := func(flag, dir, usual string) error {
		if _, err := os.Stat(dir); dir != usual && errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s %s does not exist: name the folder that the runtime reads, or make it", flag, dir)
		}
		return nil
	}
	return errors.Join(check("--cni-conf-dir", o.ConfDir, DefaultConfDir), check("--cni-bin-dir", o.BinDir, DefaultBinDir))
}

// fits returns an error if what the folder has and the names that we were given do not go together.
func (o Options) fits() error {
	name, err := o.primary()
	switch {
	case errors.Is(err, errOtherPrimary) && !o.PrimaryLater:
		return fmt.Errorf("%w: name one of them, or say --primary-later if it is still to come", err)
	case errors.Is(err, errNoPrimary) && !o.InPlace:
	case err != nil:
		return err
	}
	if o.InPlace {
		return o.editable(name)
	}
	if content, err := os.ReadFile(o.path(o.Name)); err == nil && ownFile(o.Name, content) == "" && !o.unmarked(content) {
		return fmt.Errorf("--conflist-name %s: there is a configuration of that name which is not latch's own", o.Name)
	}
	return o.hidden()
}

// arrive notes, before the runtime can ask the plugin, that Latch comes to a node with running pods: the node
// must not be taken for not ready, and its pods out of their Services, while latchd starts. That Latch is new
// here is known by its binary, which outlives a reboot and not an uninstall; and by the absence of a report.
func (o Options) arrive() error {
	if _, err := os.Stat(filepath.Join(o.BinDir, pluginType)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	store := state.New(o.StateDir)
	if _, err := store.ReadStatus(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	running, err := adopt.Sandboxes()
	if err != nil || !running {
		return err
	}
	now := time.Now()
	return store.WriteStatus(state.Status{Arrived: now, UpdatedAt: now, Message: "Latch was just installed, latchd has not started yet"})
}

func (o Options) copyPlugin() error {
	if o.Plugin == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find plugin to copy: %w", err)
		}
		o.Plugin = filepath.Join(filepath.Dir(self), pluginType)
	}
	changed, err := copyPlugin(o.Plugin, o.BinDir)
	if changed && err == nil {
		o.Log.Info("copied plugin", "folder", o.BinDir)
	}
	return err
}
