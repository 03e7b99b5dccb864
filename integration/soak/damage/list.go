package damage

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/pins"
)

// Damage is one thing that is broken by hand.
type Damage struct {
	Name string
	Says string // what the audit says of it
	tcx  bool   // for a pod that is attached by tcx
	// opens says that our program is off the interface until the audit has put it back.
	opens bool
	// silent says that there is nothing that the audit could notice.
	silent bool
	do     func(*hand) error
	after  func(*hand) error // what else must be so when it is mended
}

// Our filters, as tc names them.
var filters = map[string][]string{
	"from_pod": {"ingress", "protocol", "all", "prio", "1", "handle", "0x1a7c", "bpf"},
	"to_pod":   {"egress", "protocol", "all", "prio", "1", "handle", "0x1a7c", "bpf"},
}

func (h *hand) filter(verb, side string, more ...string) error {
	args := append([]string{"filter", verb, "dev", h.pod.HostName}, filters[side]...)
	return h.tc(append(args, more...)...)
}

func hooks() []Damage {
	return []Damage{
		{Name: "filter from_pod deleted", Says: "was not in force", opens: true, do: func(h *hand) error { return h.filter("del", "from_pod") }},
		{Name: "filter to_pod deleted", Says: "was not in force", opens: true, do: func(h *hand) error { return h.filter("del", "to_pod") }},
		{Name: "qdisc deleted", Says: "was not in force", opens: true, do: func(h *hand) error {
			return h.tc("qdisc", "del", "dev", h.pod.HostName, "clsact")
		}},
		{Name: "filter replaced by another program", Says: "was not in force", opens: true, do: func(h *hand) error {
			return h.filter("replace", "from_pod", "da", "object-pinned", h.foreign.pin)
		}},
		{Name: "pin of a link deleted", Says: "pinned objects: link", tcx: true, do: func(h *hand) error {
			return os.Remove(h.pins.Link(h.iface().PodID, "from_pod"))
		}},
		{Name: "pin of a link replaced by a map", Says: "pinned objects: link", tcx: true, do: func(h *hand) error {
			return pins.PinAtomic(h.foreign.seen, h.pins.Link(h.iface().PodID, "to_pod"))
		}},
		{Name: "link detached", Says: "was not in force", tcx: true, opens: true, do: func(h *hand) error {
			return h.link("to_pod", func(l link.Link) error { return l.Detach() })
		}},
		{Name: "link updated to another program", Says: "was not in force", tcx: true, opens: true, do: func(h *hand) error {
			return h.link("from_pod", func(l link.Link) error { return l.Update(h.foreign.prog) })
		}},
	}
}

func (h *hand) link(side string, f func(link.Link) error) error {
	l, err := pins.LoadLink(h.pins.Link(h.iface().PodID, side), nil)
	if err != nil {
		return err
	}
	return errors.Join(f(l), l.Close())
}

func bindings() []Damage {
	podState := func(f func(*bpf.PodState)) func(*hand) error {
		return func(h *hand) error { return h.words(func(_ *bpf.Slot, p *bpf.PodState) { f(p) }) }
	}
	return []Damage{
		{Name: "pod_state deleted", Says: "pod_state of", do: podState(func(p *bpf.PodState) { set(&p.Ifindex, 0) })},
		{Name: "pod_state zeroed", Says: "pod_state of", do: podState(func(p *bpf.PodState) { *p = bpf.PodState{} })},
		{Name: "pod_state moved to default allow", Says: "pod_state of", opens: true, do: podState(func(p *bpf.PodState) { set(&p.Slot, bpf.SlotDefaultAllow) })},
		{Name: "pod_state of another pod id", Says: "pod_state of", do: podState(func(p *bpf.PodState) { set(&p.Pod, p.Pod+1000) })},
		{Name: "pod_state with another address", Says: "pod_state of", do: podState(func(p *bpf.PodState) { set(&p.Addr4, 1) })},
	}
}

func slots() []Damage {
	slot := func(f func(*bpf.Slot)) func(*hand) error {
		return func(h *hand) error { return h.words(func(s *bpf.Slot, _ *bpf.PodState) { f(s) }) }
	}
	return []Damage{
		{Name: "slot's flags cleared", Says: "slot ", do: slot(func(s *bpf.Slot) { set(&s.Flags, 0) })},
		{Name: "slot's hash changed", Says: "rules of slot", do: slot(func(s *bpf.Slot) { s.RulesHash[0] ^= 0xff })},
		{Name: "slot's hash zeroed", Says: "rules of slot", do: slot(func(s *bpf.Slot) { s.RulesHash = [32]byte{} })},
		{Name: "slot given to another identifier", Says: "slot", do: slot(func(s *bpf.Slot) { s.Identifier[0] ^= 0xff })},
		{Name: "result of a miss changed", Says: "rules of slot", opens: true, do: slot(func(s *bpf.Slot) {
			set(&s.OnMiss[0], bpf.ResAllow)
			set(&s.OnMiss[1], bpf.ResAllow)
		})},
		{Name: "prefix lengths changed", Says: "rules of slot", do: slot(func(s *bpf.Slot) { set(&s.Lens[1][0], 0) })},
		{Name: "rule edited", Says: "rules of slot", opens: true, do: func(h *hand) error {
			return h.inner("rules_out4", func(_, m *ebpf.Map) error {
				allow := bpf.RuleVal{B: bpf.PortKeyMax, In: bpf.ResAllow, Out: bpf.ResAllow}
				return m.Put(outside(), allow)
			})
		}},
		{Name: "rule deleted", Says: "rules of slot", do: func(h *hand) error {
			return h.inner("rules_in4", func(_, m *ebpf.Map) error { return m.Delete(outside()) })
		}},
		{Name: "port set overwritten", Says: "rules of slot", opens: true, do: func(h *hand) error {
			return h.inner("portsets", func(_, m *ebpf.Map) error {
				var b bpf.PortBlock
				for i := range b.B {
					b.B[i] = bpf.Breakpoint{Start: uint32(i), Result: bpf.ResAllow}
				}
				return m.Put(uint32(0), &b)
			})
		}},
		{Name: "inner map deleted", Says: "rules of slot", do: func(h *hand) error {
			return h.inner("rules_in4", func(outer, _ *ebpf.Map) error { return outer.Delete(h.att.Slot) })
		}},
	}
}

// pinned breaks each pin in turn.
func pinned() []Damage {
	var all []Damage
	for _, name := range bpf.MapNames() {
		all = append(all, Damage{Name: "pin of map " + name + " deleted", Says: "pinned objects changed",
			do: func(h *hand) error { return os.Remove(h.pins.Map(name)) }})
	}
	for _, name := range bpf.ProgNames() {
		all = append(all, Damage{Name: "pin of program " + name + " deleted", Says: "pinned objects changed",
			do: func(h *hand) error { return os.Remove(h.pins.Prog(name)) }})
	}
	return append(all, Damage{Name: "all pins of maps and programs deleted", Says: "pinned objects changed",
		do: func(h *hand) error {
			return errors.Join(removeFiles(h.pins.Root()), removeFiles(filepath.Dir(h.pins.Prog("to_pod"))))
		}})
}

// removeFiles removes what is in a folder, but for folders.
func removeFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	errs := []error{err}
	for _, e := range entries {
		if !e.IsDir() {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
