package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// lockTimeout is how long cleanup waits for a writer to end.
const lockTimeout = 10 * time.Second

// uninstall removes Latch from a node: attachments by the write path, then what it leaves.
type uninstall struct {
	bpffs, stateDir string
	store           state.Store
	pins            pins.Dir
	layouts         []int
}

// inventory is what there is to remove.
type inventory struct {
	Attachments []string `json:"attachments"` // pod and interfaces
	Layouts     []string `json:"layouts"`     // folders of pins
	Records     int      `json:"records"`     // files below the state directory
	StateDir    string   `json:"stateDir"`
}

func newUninstall(bpffs, stateDir string) (*uninstall, error) {
	u := &uninstall{bpffs: bpffs, stateDir: stateDir, store: state.New(stateDir), pins: pins.New(bpffs)}
	var err error
	u.layouts, err = u.pins.Layouts()
	return u, err
}

func (u *uninstall) inventory() inventory {
	i := inventory{Attachments: []string{}, Layouts: []string{}, StateDir: u.stateDir}
	attachments, _ := u.store.ListAttachments()
	for _, a := range attachments {
		var names []string
		for _, in := range a.Interfaces {
			names = append(names, in.Name)
		}
		i.Attachments = append(i.Attachments, fmt.Sprintf("%s/%s on %s", a.PodNamespace, a.PodName, strings.Join(names, ", ")))
	}
	for _, v := range u.layouts {
		i.Layouts = append(i.Layouts, filepath.Join(filepath.Dir(u.pins.Root()), fmt.Sprintf("v%d", v)))
	}
	_ = filepath.WalkDir(u.stateDir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			i.Records++
		}
		return nil
	})
	return i
}

func (i inventory) empty() bool { return len(i.Attachments)+len(i.Layouts)+i.Records == 0 }

func (i inventory) String() string {
	if i.empty() {
		return "nothing, there was nothing"
	}
	return fmt.Sprintf("%s, %s of pins, %s", plural(len(i.Attachments), "attachment"), plural(len(i.Layouts), "layout"), plural(i.Records, "record"))
}

func (i inventory) table(w io.Writer) {
	for _, a := range i.Attachments {
		fmt.Fprintf(w, "attachment  %s\n", a)
	}
	for _, l := range i.Layouts {
		fmt.Fprintf(w, "pins        %s\n", l)
	}
	fmt.Fprintf(w, "records     %s in %s\n", plural(i.Records, "file"), i.StateDir)
}

// run removes everything. It goes on after an error, and says all of them.
func (u *uninstall) run(ctx context.Context) error {
	errs := []error{u.detach(ctx), u.strays()}
	for _, v := range u.layouts {
		errs = append(errs, u.pins.RemoveLayout(v)) // links end with their pins
	}
	return errors.Join(append(errs, u.records(ctx))...)
}

// detach takes the recorded attachments off their interfaces.
func (u *uninstall) detach(ctx context.Context) error {
	attachments, err := u.store.ListAttachments()
	errs := []error{err}
	cfg := enforce.Config{Bpffs: u.bpffs, StateDir: u.stateDir, AttachMode: attach.ModeAuto, LockTimeout: lockTimeout}
	var e *enforce.Enforcer
	for _, a := range attachments {
		unpinned, err := enforce.Discard(ctx, cfg, a.ContainerID, a.IfName)
		if err == nil && !unpinned {
			if e == nil {
				if e, err = enforce.Open(ctx, cfg); err != nil {
					return errors.Join(append(errs, err)...)
				}
				defer func() { _ = e.Close() }()
			}
			err = e.Detach(ctx, a.ContainerID, a.IfName)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// strays takes our filters off interfaces that no record names. Links have gone with their pins.
func (u *uninstall) strays() error {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		for _, side := range attach.Sides {
			s, err := attach.Query(l.Attrs().Index, side, 0)
			if err == nil && s.ProgID != 0 {
				err = attach.Detach(l.Attrs().Index, side, "")
			}
			if !errors.Is(err, attach.ErrGone) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// records removes what the state directory holds, each identifier's under its lock, and the locks
// with it.
func (u *uninstall) records(ctx context.Context) error {
	locks := lock.New(u.store.LockDir())
	var errs []error
	for _, id := range u.identifiers() {
		held, err := locks.Acquire(ctx, lockTimeout, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, u.store.DeleteIdentifier(id), held.ReleaseAndRemove())
	}
	pods, err := u.store.ListPods()
	errs = append(errs, err)
	for _, p := range pods {
		errs = append(errs, u.store.DeletePod(p.Namespace, p.Name))
	}
	errs = append(errs, u.store.DeleteStatus(), u.store.DeleteSettings(), u.store.SweepTemp(0), u.unlockNode(ctx, locks))
	_ = os.Remove(filepath.Join(u.stateDir, "members")) // fails if it is not empty: then something else is wrong
	return errors.Join(append(errs, u.store.RemoveFolders())...)
}

// identifiers are those that have a record or a lock file.
func (u *uninstall) identifiers() []identity.Identifier {
	seen := map[identity.Identifier]bool{}
	var ids []identity.Identifier
	add := func(id identity.Identifier) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	recs, _ := u.store.ListIdentifiers()
	for _, r := range recs {
		add(r.Identifier)
	}
	files, _ := os.ReadDir(u.store.LockDir())
	for _, f := range files {
		if id, err := identity.Parse(strings.TrimSuffix(f.Name(), ".lock")); err == nil {
			add(id)
		}
	}
	return ids
}

func (u *uninstall) unlockNode(ctx context.Context, locks lock.Dir) error {
	if _, err := os.Stat(locks.Path()); errors.Is(err, os.ErrNotExist) {
		return nil // taking the lock would make the folder
	}
	held, err := locks.AcquireNode(ctx, lockTimeout)
	if err != nil {
		return err
	}
	return held.ReleaseAndRemove()
}
