package cleanup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// lockTimeout is how long Run waits for a writer to end.
const lockTimeout = 10 * time.Second

// Node is the node that Latch is removed from.
type Node struct {
	bpffs, stateDir string
	store           state.Store
	pins            pins.Dir
	layouts         []int
}

// Inventory is what there is to remove.
type Inventory struct {
	Attachments []string `json:"attachments"` // pod and interfaces
	Layouts     []string `json:"layouts"`     // folders of pins
	Records     int      `json:"records"`     // files below the state directory
	StateDir    string   `json:"stateDir"`
}

// New looks which layouts of pins are there.
func New(bpffs, stateDir string) (*Node, error) {
	n := &Node{bpffs: bpffs, stateDir: stateDir, store: state.New(stateDir), pins: pins.New(bpffs)}
	var err error
	n.layouts, err = n.pins.Layouts()
	return n, err
}

// Inventory lists what Run would remove.
func (n *Node) Inventory() Inventory {
	i := Inventory{Attachments: []string{}, Layouts: []string{}, StateDir: n.stateDir}
	attachments, _ := n.store.ListAttachments()
	for _, a := range attachments {
		var names []string
		for _, in := range a.Interfaces {
			names = append(names, in.Name)
		}
		i.Attachments = append(i.Attachments, fmt.Sprintf("%s/%s on %s", a.PodNamespace, a.PodName, strings.Join(names, ", ")))
	}
	for _, v := range n.layouts {
		i.Layouts = append(i.Layouts, filepath.Join(filepath.Dir(n.pins.Root()), fmt.Sprintf("v%d", v)))
	}
	_ = filepath.WalkDir(n.stateDir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			i.Records++
		}
		return nil
	})
	return i
}

// Empty tells whether there is nothing to remove.
func (i Inventory) Empty() bool { return len(i.Attachments)+len(i.Layouts)+i.Records == 0 }

// Run removes everything. It goes on after an error, and says all of them. Safe to call again.
func (n *Node) Run(ctx context.Context) error {
	errs := []error{n.detach(ctx), n.strays()}
	for _, v := range n.layouts {
		errs = append(errs, n.pins.RemoveLayout(v)) // links end with their pins
	}
	return errors.Join(append(errs, n.records(ctx))...)
}

// detach takes the recorded attachments off their interfaces.
func (n *Node) detach(ctx context.Context) error {
	attachments, err := n.store.ListAttachments()
	errs := []error{err}
	cfg := enforce.Config{Bpffs: n.bpffs, StateDir: n.stateDir, AttachMode: attach.ModeAuto, LockTimeout: lockTimeout}
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
func (n *Node) strays() error {
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
func (n *Node) records(ctx context.Context) error {
	locks := lock.New(n.store.LockDir())
	var errs []error
	for _, id := range n.identifiers() {
		held, err := locks.Acquire(ctx, lockTimeout, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, n.store.DeleteIdentifier(id), held.ReleaseAndRemove())
	}
	pods, err := n.store.ListPods()
	errs = append(errs, err)
	for _, p := range pods {
		errs = append(errs, n.store.DeletePod(p.Namespace, p.Name))
	}
	errs = append(errs, n.store.DeleteStatus(), n.store.DeleteSettings(), n.store.DeleteFailures(), n.store.DeleteManifests(), n.store.SweepTemp(0), n.unlockNode(ctx, locks))
	errs = append(errs, os.RemoveAll(filepath.Join(n.stateDir, "members"))) // an index: it names, it holds nothing
	return errors.Join(append(errs, n.folders())...)
}

// folders removes the empty folders. The state directory may be a mount of the container that this runs
// in: then it stays, empty.
func (n *Node) folders() error {
	err := n.store.RemoveFolders()
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	if left, readErr := os.ReadDir(n.stateDir); readErr != nil || len(left) > 0 {
		return err
	}
	return nil
}

// identifiers are those that have a record or a lock file.
func (n *Node) identifiers() []identity.Identifier {
	seen := map[identity.Identifier]bool{}
	var ids []identity.Identifier
	add := func(id identity.Identifier) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	recs, _ := n.store.ListIdentifiers()
	for _, r := range recs {
		add(r.Identifier)
	}
	files, _ := os.ReadDir(n.store.LockDir())
	for _, f := range files {
		if id, err := identity.Parse(strings.TrimSuffix(f.Name(), ".lock")); err == nil {
			add(id)
		}
	}
	return ids
}

func (n *Node) unlockNode(ctx context.Context, locks lock.Dir) error {
	if _, err := os.Stat(locks.Path()); errors.Is(err, os.ErrNotExist) {
		return nil // taking the lock would make the folder
	}
	held, err := locks.AcquireNode(ctx, lockTimeout)
	if err != nil {
		return err
	}
	return held.ReleaseAndRemove()
}
