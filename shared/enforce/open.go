package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/rules"
	"github.com/latch-cni/latch/shared/state"
)

// Config says where the kernel objects and the records are. The first four fields are needed.
type Config struct {
	Bpffs       string        // mount point of bpffs, /sys/fs/bpf
	StateDir    string        // records and locks, /run/latch
	AttachMode  attach.Mode   // how interfaces are attached
	LockTimeout time.Duration // bound of the wait for a lock, never of the work
	Sizes       bpf.Sizes     // of maps, when they have to be made; zero = default
	Log         *slog.Logger
	HoldLinks   bool // keep links of tcx open, so that who deletes their pins does not take programs off

	// BindOnly is for a process that only binds interfaces to rules that others have written: it opens no
	// more of the pinned objects than Check, Remove and an Apply without rules take, and can do no more.
	BindOnly bool

	// FreeLater has Apply not wait until slots are empty that it has moved all pods away from. For a moment they keep
	// small maps, so that who fills them next need not wait either.
	FreeLater bool

	// FreeCounters is called when the counters of slots are to be deleted, and calls drop to have it
	// done: whoever adds them up reads them a last time before. Nil deletes them.
	FreeCounters func(slots []uint32, drop func() error) error
}

// Enforcer is the node's kernel objects, open. It is safe for concurrent use; what may run at the
// same time is decided by the locks.
type Enforcer struct {
	cfg   Config
	pins  pins.Dir
	locks lock.Dir
	store state.Store
	log   *slog.Logger

	mu       sync.RWMutex // guards what follows against reopening
	objects  *objects
	node     *NodeConfig // as SetNode was told last, for objects that take the place of these
	replaced uint64      // how often others took their place
	notes    []string    // what was mended outside of Apply, for the next sweep to report

	cacheMu sync.Mutex
	content map[uint32]cached
	freed   map[uint32]time.Time
	opened  time.Time // the objects
	grace   grace
	emptier emptier

	deep deepBudget
	seen seen

	expiring sync.Mutex
	tables   atomic.Pointer[[]Table]

	links   *attach.Links // nil unless they are to be held
	tooMany sync.Once     // says so
}

// objects are the pinned objects, opened from one generation of pins.
type objects struct {
	progs  map[string]*ebpf.Program
	maps   map[string]*ebpf.Map
	slots  *bpf.Array[bpf.Slot]
	pods   *bpf.Array[bpf.PodState]
	node   *bpf.Array[bpf.Node]
	tables *rules.Tables                     // nil with BindOnly
	ends   *bpf.Array[bpf.TableEnd]          // likewise
	inodes atomic.Pointer[map[string]uint64] // what the pins were; looked at by everybody, replaced by who pins again
}

// cached is the content of a slot as this process wrote it last.
type cached struct {
	objects *objects // other ones may hold equal rules with their port sets elsewhere
	hash    [32]byte
	content *rules.Content
}

// Open opens the node's pinned programs and maps, or loads and pins them when the node has none. It
// mounts bpffs when it is missing. The error says what the node lacks.
func Open(ctx context.Context, cfg Config) (*Enforcer, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Sizes == (bpf.Sizes{}) {
		cfg.Sizes = bpf.DefaultSizes()
	}
	if err := pins.EnsureBPFFS(cfg.Bpffs); err != nil {
		return nil, err
	}
	e := &Enforcer{
		cfg:     cfg,
		pins:    pins.New(cfg.Bpffs),
		store:   state.New(cfg.StateDir),
		locks:   lock.New(state.New(cfg.StateDir).LockDir()),
		log:     cfg.Log,
		content: map[uint32]cached{},
		freed:   map[uint32]time.Time{},
	}
	if cfg.HoldLinks {
		e.links = attach.NewLinks()
	}
	if newer, err := e.pins.NewerLayouts(); err != nil || len(newer) > 0 {
		return nil, errors.Join(err, newerLayout(newer))
	}
	if err := e.reopen(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// newerLayout is the error of a binary that finds objects of a later one: it could not read them, and
// two layouts at work would be two truths.
func newerLayout(newer []int) error {
	if len(newer) == 0 {
		return nil
	}
	return fmt.Errorf("the node has pinned objects of layout v%d, this build knows v%d: use the newer build, or remove them with it (latchctl cleanup)", newer[len(newer)-1], pins.Layout)
}

// Store returns the node's records, for reading.
func (e *Enforcer) Store() state.Store { return e.store }

// Lock takes the locks of identifiers, in sorted order. The wait is bounded by the configuration.
func (e *Enforcer) Lock(ctx context.Context, ids ...identity.Identifier) (*lock.Held, error) {
	return e.locks.Acquire(ctx, e.cfg.LockTimeout, ids...)
}

// Close closes the objects. Pins, attached programs and records stay: enforcement goes on.
func (e *Enforcer) Close() error {
	e.emptier.wait()
	e.purge()
	e.emptier.kept.purging.Lock()
	defer e.emptier.kept.purging.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keepLinks(nil)
	if e.objects == nil {
		return nil
	}
	err := e.objects.close()
	e.objects = nil
	return err
}

// reopen opens the pins, loading and pinning everything when one is missing.
func (e *Enforcer) reopen(ctx context.Context) error {
	o, err := openObjects(e.pins, e.cfg.BindOnly)
	if unusable(err) {
		o, err = e.loadLocked(ctx)
	}
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// Objects opened before stay open: another goroutine may be using them. It happens only when
	// somebody replaces the pins.
	e.objects = o
	e.cacheMu.Lock()
	clear(e.content)
	clear(e.freed)
	e.opened = time.Now()
	e.cacheMu.Unlock()
	e.keepFound(o)
	return nil
}

// loadLocked loads and pins everything under the node lock, unless somebody else just did.
func (e *Enforcer) loadLocked(ctx context.Context) (*objects, error) {
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	switch o, err := openObjects(e.pins, e.cfg.BindOnly); {
	case !unusable(err):
		return o, err
	case !errors.Is(err, fs.ErrNotExist):
		e.log.Error("pinned objects cannot be used, loading others", "error", err)
	default:
		if o, err := e.addLaterMaps(); err == nil {
			return o, nil
		}
	}
	loaded, err := bpf.Load(e.cfg.Sizes)
	if err != nil {
		return nil, err
	}
	defer loaded.Close()
	if err := pinAll(e.pins, loaded.Maps, loaded.Programs(), false); err != nil {
		return nil, err
	}
	o, err := openObjects(e.pins, e.cfg.BindOnly)
	if err != nil {
		return nil, err
	}
	e.keepPods(o)
	return o, nil
}

// keepPods has fresh objects give no pod id that a record has: the attachment may still be there.
func (e *Enforcer) keepPods(o *objects) {
	atts, err := e.store.ListAttachments()
	if err != nil {
		e.log.Warn("records that cannot be read: their pod ids may be given again", "error", err)
	}
	next := &o.node.At(0).NextPod
	for _, a := range atts {
		for _, in := range a.Interfaces {
			for now := atomic.LoadUint32(next); now < in.PodID && !atomic.CompareAndSwapUint32(next, now, in.PodID); {
				now = atomic.LoadUint32(next)
			}
		}
	}
}

// pinAll pins maps first and programs last: with all programs in place the set is complete. With
// onlyMissing, pins that are there are left alone.
func pinAll(dir pins.Dir, maps map[string]*ebpf.Map, progs map[string]*ebpf.Program, onlyMissing bool) error {
	if err := dir.Make(); err != nil {
		return err
	}
	pin := func(o pins.Object, path string) error {
		if _, err := os.Stat(path); onlyMissing && !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return pins.PinAtomic(o, path)
	}
	for _, name := range bpf.MapNames() {
		if err := pin(maps[name], dir.Map(name)); err != nil {
			return err
		}
	}
	for _, name := range bpf.ProgNames() {
		if err := pin(progs[name], dir.Prog(name)); err != nil {
			return err
		}
	}
	return nil
}

// pin pins open objects, as pinAll does, and takes note of what the pins are from then on.
func (o *objects) pin(dir pins.Dir, onlyMissing bool) error {
	if err := pinAll(dir, o.maps, o.progs, onlyMissing); err != nil {
		return err
	}
	now, err := inodes(dir, false)
	if err == nil {
		o.inodes.Store(&now)
	}
	return err
}

// openObjects opens every pin, or those of the programs and of bindMaps. A missing one is fs.ErrNotExist,
// one of another's errForeign.
func openObjects(dir pins.Dir, bindOnly bool) (o *objects, err error) {
	o = &objects{progs: map[string]*ebpf.Program{}, maps: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			_ = o.close()
			o = nil
		}
	}()
	found, err := inodes(dir, bindOnly)
	if err != nil {
		return o, err
	}
	o.inodes.Store(&found)
	for _, name := range bpf.ProgNames() {
		if o.progs[name], err = pins.LoadProgram(dir.Prog(name), nil); err != nil {
			return o, err
		}
	}
	for _, name := range mapNames(bindOnly) {
		if o.maps[name], err = pins.LoadMap(dir.Map(name), nil); err != nil {
			return o, err
		}
	}
	if o.slots, err = bpf.MapArray[bpf.Slot](o.maps["slots"]); err != nil {
		return o, err
	}
	if o.pods, err = bpf.MapArray[bpf.PodState](o.maps["pod_state"]); err != nil {
		return o, err
	}
	if o.node, err = bpf.MapArray[bpf.Node](o.maps["node"]); err != nil {
		return o, err
	}
	if bindOnly {
		return o, o.genuine(dir, false)
	}
	if o.tables, err = rules.NewTables(o.maps, o.slots); err != nil {
		return o, err
	}
	if o.ends, err = bpf.MapArray[bpf.TableEnd](o.maps["table_ends"]); err != nil {
		return o, err
	}
	return o, o.genuine(dir, true)
}

// inodes reads which object each pin names: bpffs gives every pinning an inode of its own.
func inodes(dir pins.Dir, bindOnly bool) (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, name := range bpf.ProgNames() {
		all[dir.Prog(name)] = 0
	}
	for _, name := range mapNames(bindOnly) {
		all[dir.Map(name)] = 0
	}
	for path := range all {
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			return nil, fmt.Errorf("open pin %s: %w", path, err)
		}
		all[path] = st.Ino
	}
	return all, nil
}

// mapNames are the maps to open.
func mapNames(bindOnly bool) []string {
	if bindOnly {
		return bindMaps
	}
	return bpf.MapNames()
}

func (o *objects) close() error {
	var errs []error
	for _, p := range o.progs {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	if o.slots != nil {
		errs = append(errs, o.slots.Close())
	}
	if o.pods != nil {
		errs = append(errs, o.pods.Close())
	}
	if o.node != nil {
		errs = append(errs, o.node.Close())
	}
	if o.ends != nil {
		errs = append(errs, o.ends.Close())
	}
	for _, m := range o.maps {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}
