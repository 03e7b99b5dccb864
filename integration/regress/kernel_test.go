package regress

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/view"
)

func (g *ground) store() state.Store { return state.New(g.node.StateDir) }

// drops is how many packets all pods' programs have dropped, by counter.
func (g *ground) drops() map[bpf.CounterKey]uint64 {
	g.t.Helper()
	return g.counters(func(k bpf.CounterKey) bool { return k.Allow == 0 && k.Slot != bpf.CounterLostEvents })
}

// dropsSince is how many there were since. A slot that pods have left takes its counters with it when it is
// freed, a moment later: what is less than before began anew.
func (g *ground) dropsSince(before map[bpf.CounterKey]uint64) (sum uint64) {
	g.t.Helper()
	for key, n := range g.drops() {
		if n >= before[key] {
			n -= before[key]
		}
		sum += n
	}
	return sum
}

// counted sums counters.
func (g *ground) counted(which func(bpf.CounterKey) bool) (sum uint64) {
	g.t.Helper()
	for _, n := range g.counters(which) {
		sum += n
	}
	return sum
}

// counters reads counters from the kernel.
func (g *ground) counters(which func(bpf.CounterKey) bool) map[bpf.CounterKey]uint64 {
	g.t.Helper()
	found := map[bpf.CounterKey]uint64{}
	m, err := pins.LoadMap(pins.New(g.node.Bpffs).Map("counters"), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return found
	}
	if err != nil {
		g.t.Fatal(err)
	}
	defer m.Close()
	var key bpf.CounterKey
	var perCPU []uint64
	it := m.Iterate()
	for it.Next(&key, &perCPU) {
		if which(key) {
			for _, v := range perCPU {
				found[key] += v
			}
		}
	}
	if err := it.Err(); err != nil {
		g.t.Fatal(err)
	}
	return found
}

// dropsOf is how many packets of a pod were dropped in one direction.
func (p *pod) dropsOf(dir uint8) uint64 {
	p.g.t.Helper()
	slot := p.record().Slot
	return p.g.counted(func(k bpf.CounterKey) bool { return k.Allow == 0 && k.Slot == slot && k.Dir == dir })
}

// record is the attachment as it is recorded.
func (p *pod) record() state.Attachment {
	p.g.t.Helper()
	a, err := p.g.store().ReadAttachment(p.container, p.IfName)
	if err != nil {
		p.g.t.Fatal(err)
	}
	return a
}

// audit compares all that is recorded with the kernel: programs, bindings, slots, rules.
func (g *ground) audit() error {
	return g.Node.Do(func() error {
		n, err := view.Open(g.node.Bpffs, g.node.StateDir)
		if err != nil {
			return err
		}
		defer n.Close()
		report, err := n.Audit()
		errs := []error{err}
		for _, p := range report.Problems {
			errs = append(errs, errors.New(p.String()))
		}
		return errors.Join(errs...)
	})
}

// healthy requires a clean audit.
func (g *ground) healthy() {
	g.t.Helper()
	if err := g.audit(); err != nil {
		g.t.Errorf("audit: %v", err)
	}
}

// finish deletes all pods and manifests and requires that nothing of them is left, and that no packet
// that was denied has come late.
func (g *ground) finish() {
	g.t.Helper()
	for _, s := range g.forbidden {
		if g.ends[s.at] != nil && g.arrived(s.at)[s.mark] > 0 {
			g.t.Errorf("%s: arrived later, want deny", s.packet)
		}
	}
	if g.node.Latchd == nil {
		g.startLatchd() // it retires what has no pod
	}
	for _, p := range g.added {
		p.del()
	}
	g.remove(sortedKeys(g.files)...)
	g.eventually(10*time.Second, g.nothingLeft)
}

// nothingLeft says what there is of pods on the node, in the kernel and on disk.
func (g *ground) nothingLeft() error {
	var left []string
	for _, dir := range []string{"pods", "attachments", "identifiers", "members", "locks"} {
		entries, err := os.ReadDir(filepath.Join(g.node.StateDir, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if e.Name() != "node.lock" {
				left = append(left, filepath.Join(dir, e.Name()))
			}
		}
	}
	links, err := pins.New(g.node.Bpffs).Links()
	left = append(left, links...)
	slots, err2 := g.slotsInUse()
	left = append(left, slots...)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("left over:\n\t%s", strings.Join(left, "\n\t"))
	}
	return nil
}

// slotsInUse names the slots of identifiers, and the interfaces that are bound.
func (g *ground) slotsInUse() (used []string, err error) {
	dir := pins.New(g.node.Bpffs)
	err = viewArray(dir.Map("slots"), func(i int, s *bpf.Slot) {
		if i >= bpf.FirstSlot && s.Flags != 0 {
			used = append(used, fmt.Sprintf("slot %d of identifier %x", i, s.Identifier))
		}
	})
	if err != nil {
		return nil, err
	}
	err = viewArray(dir.Map("pod_state"), func(_ int, p *bpf.PodState) {
		if p.Ifindex != 0 {
			used = append(used, fmt.Sprintf("pod_state of interface %d", p.Ifindex))
		}
	})
	return used, err
}

func viewArray[T any](path string, each func(int, *T)) error {
	m, err := pins.LoadMap(path, nil) // a map open for reading only cannot be mapped
	if err != nil {
		return err
	}
	defer m.Close()
	a, err := bpf.ViewArray[T](m)
	if err != nil {
		return err
	}
	defer a.Close()
	for i := range a.Len() {
		v := *a.At(i)
		each(i, &v)
	}
	return nil
}

// identifier is that of the pod's labels.
func (p *pod) identifier() identity.Identifier { return identity.Of(p.Spec.Namespace, p.Spec.Labels) }

// pinned lists the ids of pinned programs and maps, to tell whether they are still the same.
func (g *ground) pinned() map[string]uint32 {
	g.t.Helper()
	ids := map[string]uint32{}
	dir := pins.New(g.node.Bpffs)
	for _, name := range bpf.MapNames() {
		m, err := pins.LoadMap(dir.Map(name), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			g.t.Fatal(err)
		}
		info, err := m.Info()
		_ = m.Close()
		if err != nil {
			g.t.Fatal(err)
		}
		id, _ := info.ID()
		ids["map "+name] = uint32(id)
	}
	for _, name := range bpf.ProgNames() {
		p, err := pins.LoadProgram(dir.Prog(name), nil)
		if err != nil {
			g.t.Fatal(err)
		}
		info, err := p.Info()
		_ = p.Close()
		if err != nil {
			g.t.Fatal(err)
		}
		id, _ := info.ID()
		ids["program "+name] = uint32(id)
	}
	return ids
}
