package damage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// hand is somebody with root who knows the objects of a node, and one pod of it.
type hand struct {
	s    *stage.Stage
	pod  *stage.Pod
	pins pins.Dir
	att  state.Attachment

	foreign *foreign
	links   []link.Link // of others
}

func (h *hand) iface() state.Interface { return h.att.Interfaces[0] }

// refresh reads what is recorded of the pod now.
func (h *hand) refresh() (err error) {
	h.att, err = h.store().ReadAttachment(h.pod.Container, "eth0")
	return err
}

func (h *hand) store() state.Store { return state.New(h.s.Node.StateDir) }

// tc runs the tool in the node's namespace.
func (h *hand) tc(args ...string) error {
	return h.s.OnNode(func() error {
		if out, err := exec.Command("tc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("tc %v: %w: %s", args, err, out)
		}
		return nil
	})
}

// words calls f with the pod's slot and its binding, as the programs see them.
func (h *hand) words(f func(*bpf.Slot, *bpf.PodState)) error {
	slots, closeSlots, err := array[bpf.Slot](h, "slots")
	if err != nil {
		return err
	}
	defer closeSlots()
	pods, closePods, err := array[bpf.PodState](h, "pod_state")
	if err != nil {
		return err
	}
	defer closePods()
	f(slots.At(int(h.att.Slot)), pods.At(h.iface().Ifindex))
	return nil
}

func array[T any](h *hand, name string) (*bpf.Array[T], func(), error) {
	m, err := pins.LoadMap(h.pins.Map(name), nil)
	if err != nil {
		return nil, nil, err
	}
	defer m.Close()
	a, err := bpf.MapArray[T](m)
	return a, func() { _ = a.Close() }, err
}

// inner calls f with the pod's inner map of an outer one, and with the outer one.
func (h *hand) inner(name string, f func(outer, inner *ebpf.Map) error) error {
	outer, err := pins.LoadMap(h.pins.Map(name), nil)
	if err != nil {
		return err
	}
	defer outer.Close()
	var m *ebpf.Map
	if err := outer.Lookup(h.att.Slot, &m); err != nil {
		return fmt.Errorf("open inner map of %s: %w", name, err)
	}
	defer m.Close()
	return f(outer, m)
}

func set(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// lockFiles are those of the pod's identifier and of the node.
func (h *hand) lockFiles() []string {
	dir := h.store().LockDir()
	return []string{filepath.Join(dir, string(h.att.Identifier)+".lock"), filepath.Join(dir, "node.lock")}
}

func (h *hand) attachmentFile() string {
	return filepath.Join(h.s.Node.StateDir, "attachments", identity.AttachmentKey(h.pod.Container, "eth0")+".json")
}

func (h *hand) identifierFile() string {
	return filepath.Join(h.s.Node.StateDir, "identifiers", string(h.att.Identifier)+".json")
}

// foreign is a program of somebody else: it counts packets and gives one verdict.
type foreign struct {
	prog *ebpf.Program
	seen *ebpf.Map
	pin  string
}

// newForeign makes one and pins it outside of our tree.
func newForeign(bpffs, name string, verdict int32) (*foreign, error) {
	seen, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, seen.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, verdict).WithSymbol("out"),
		asm.Return(),
	}})
	if err != nil {
		return nil, err
	}
	f := &foreign{prog: prog, seen: seen, pin: filepath.Join(bpffs, name)}
	return f, prog.Pin(f.pin)
}

func (f *foreign) count() (n uint64, err error) {
	err = f.seen.Lookup(uint32(0), &n)
	return n, err
}

func (f *foreign) close() {
	_ = os.Remove(f.pin)
	_ = f.prog.Close()
	_ = f.seen.Close()
}
