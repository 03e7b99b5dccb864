package view

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/rules"
	"github.com/latch-cni/latch/shared/state"
)

var (
	// ErrNotPinned says that the node has no kernel objects of this layout, or not all of them.
	ErrNotPinned = errors.New("kernel objects are not pinned")
	// ErrNoPod says that the node knows no such pod.
	ErrNoPod = errors.New("no such pod on this node")
)

// Node is a node's kernel objects and records, open for reading.
type Node struct {
	bpffs   string
	store   state.Store
	pins    pins.Dir
	missing []string // paths of pins that are not there
	kernel  *kernel  // nil if any is missing
	layouts []int
}

type kernel struct {
	progs  map[attach.Side]uint32 // ids of the pinned programs
	maps   map[string]*ebpf.Map
	slots  *bpf.Array[bpf.Slot]
	pods   *bpf.Array[bpf.PodState]
	node   *bpf.Array[bpf.Node]
	tables *rules.Tables
}

// Open opens a node by its bpffs and the folder of its records. Objects or records that are missing
// are no error: see Status.
func Open(bpffs, stateDir string) (*Node, error) {
	n := &Node{bpffs: bpffs, store: state.New(stateDir), pins: pins.New(bpffs)}
	var err error
	if n.layouts, err = n.pins.Layouts(); err != nil {
		return nil, err
	}
	k := &kernel{progs: map[attach.Side]uint32{}, maps: map[string]*ebpf.Map{}}
	if n.missing, err = k.openPins(n.pins); err == nil && len(n.missing) == 0 {
		err = k.mapArrays()
	}
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	if len(n.missing) > 0 {
		return n, k.close()
	}
	n.kernel = k
	return n, nil
}

// Close closes what Open opened.
func (n *Node) Close() error {
	if n.kernel == nil {
		return nil
	}
	return n.kernel.close()
}

// Store returns the records.
func (n *Node) Store() state.Store { return n.store }

// objects returns the kernel's objects, or why there are none.
func (n *Node) objects() (*kernel, error) {
	if n.kernel != nil {
		return n.kernel, nil
	}
	return nil, n.notPinned()
}

func (n *Node) notPinned() error { return fmt.Errorf("%w: no %s", ErrNotPinned, n.missing[0]) }

// mapped are the arrays that are memory-mapped, for reading. The kernel makes a mapping only of what is
// open for writing.
var mapped = []string{"slots", "pod_state", "node"}

func (k *kernel) openPins(dir pins.Dir) (missing []string, err error) {
	for _, name := range bpf.MapNames() {
		m, err := pins.LoadMap(dir.Map(name), &ebpf.LoadPinOptions{ReadOnly: !slices.Contains(mapped, name)})
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, dir.Map(name))
		case err != nil:
			return missing, err
		default:
			k.maps[name] = m
		}
	}
	for _, side := range attach.Sides {
		path := dir.Prog(side.String())
		id, err := programID(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, path)
		case err != nil:
			return missing, err
		}
		k.progs[side] = id
	}
	return missing, nil
}

// programID opens a pinned program for as long as it takes: the kernel opens programs for writing
// only, though nothing of them can be written.
func programID(path string) (uint32, error) {
	p, err := pins.LoadProgram(path, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info()
	if err != nil {
		return 0, fmt.Errorf("read program %s: %w", path, err)
	}
	id, _ := info.ID()
	return uint32(id), nil
}

func (k *kernel) mapArrays() (err error) {
	if k.slots, err = bpf.ViewArray[bpf.Slot](k.maps["slots"]); err != nil {
		return err
	}
	if k.pods, err = bpf.ViewArray[bpf.PodState](k.maps["pod_state"]); err != nil {
		return err
	}
	if k.node, err = bpf.ViewArray[bpf.Node](k.maps["node"]); err != nil {
		return err
	}
	for _, name := range mapped {
		err = errors.Join(err, k.maps[name].Close()) // the mapping stays
		delete(k.maps, name)
	}
	if err != nil {
		return err
	}
	k.tables, err = rules.NewTables(k.maps, k.slots)
	return err
}

func (k *kernel) close() error {
	var errs []error
	if k.slots != nil {
		errs = append(errs, k.slots.Close())
	}
	if k.pods != nil {
		errs = append(errs, k.pods.Close())
	}
	if k.node != nil {
		errs = append(errs, k.node.Close())
	}
	for _, m := range k.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// slot copies the header of a slot. Its words are read one by one: they belong together only if the
// hash does not change meanwhile.
func (k *kernel) slot(i uint32) (bpf.Slot, bool) {
	if int(i) >= k.slots.Len() {
		return bpf.Slot{}, false
	}
	s := k.slots.At(int(i))
	h := *s
	h.Generation = atomic.LoadUint32(&s.Generation)
	h.Flags = atomic.LoadUint32(&s.Flags)
	return h, true
}

// podState reads what an interface is bound to, as the programs do.
func (k *kernel) podState(ifindex int) (bpf.PodState, bool, error) {
	p := k.pods.At(ifindex & (bpf.PodStateSize - 1))
	if atomic.LoadUint32(&p.Ifindex) == uint32(ifindex) {
		return *p, true, nil
	}
	var hashed bpf.PodState
	err := k.maps["pod_state_hash"].Lookup(uint32(ifindex), &hashed)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return hashed, false, nil
	}
	if err != nil {
		return hashed, false, fmt.Errorf("read pod_state of device %d: %w", ifindex, err)
	}
	return hashed, true, nil
}
