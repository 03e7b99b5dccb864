package damage

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/pins"
)

func outside() bpf.RuleKey4 { return bpf.NewRuleKey4(netip.PrefixFrom(stage.ExtAddr, 32)) }

func records() []Damage {
	garbage := func(path func(*hand) string) func(*hand) error {
		return func(h *hand) error { return os.WriteFile(path(h), []byte("{\"ContainerID\": 7"), 0o600) }
	}
	return []Damage{
		{Name: "identifier's record deleted", Says: "record of", do: func(h *hand) error { return os.Remove(h.identifierFile()) }},
		{Name: "identifier's record is garbage", Says: "record of", do: garbage((*hand).identifierFile)},
		{Name: "attachment's record deleted", Says: "record of", do: func(h *hand) error { return os.Remove(h.attachmentFile()) }},
		{Name: "attachment's record is garbage", Says: "record of", do: garbage((*hand).attachmentFile)},
		{Name: "folder of members deleted", Says: "record of", do: func(h *hand) error {
			return os.RemoveAll(filepath.Join(h.s.Node.StateDir, "members"))
		}},
		{Name: "lock files deleted", silent: true, do: func(h *hand) error {
			for _, f := range h.lockFiles() {
				if err := os.Remove(f); err != nil && !os.IsNotExist(err) {
					return err
				}
			}
			return nil
		}},
		{Name: "folder of locks deleted", silent: true, do: func(h *hand) error { return os.RemoveAll(h.store().LockDir()) }},
		{Name: "state folder emptied", Says: "record of", do: func(h *hand) error {
			entries, err := os.ReadDir(h.s.Node.StateDir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if err := os.RemoveAll(filepath.Join(h.s.Node.StateDir, e.Name())); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

// strangers are programs of others on our hooks.
func strangers() []Damage {
	stays := func(h *hand) error { return h.seesPackets(h.foreign) }
	return []Damage{
		{Name: "another's filter in front, that accepts", Says: "was not in force", opens: true,
			do: func(h *hand) error { return h.foreignFilter() }, after: stays},
		{Name: "another's filter in front of a link", silent: true, tcx: true, // links run first
			do: func(h *hand) error {
				return errors.Join(h.tc("qdisc", "replace", "dev", h.pod.HostName, "clsact"), h.foreignFilter())
			}, after: stays},
		{Name: "another's link in front of a filter, that accepts", Says: "was not in force", opens: true,
			do: func(h *hand) error { return h.foreignLink() }, after: stays},
		{Name: "another's link in front of a link, that accepts", Says: "was not in force", tcx: true, opens: true,
			do: func(h *hand) error { return h.foreignLink() }, after: stays},
	}
}

// seesPackets requires that another's program runs behind ours: it was not removed, and is not cut off.
func (h *hand) seesPackets(f *foreign) error {
	before, err := f.count()
	if err != nil {
		return err
	}
	if err := h.pod.Obeys(patience); err != nil {
		return err
	}
	after, err := f.count()
	if err == nil && after == before {
		err = fmt.Errorf("another's program does not run any more")
	}
	return err
}

func (h *hand) foreignFilter() error {
	return h.tc("filter", "add", "dev", h.pod.HostName, "ingress", "protocol", "all", "prio", "1", "handle", "0x9", "bpf",
		"da", "object-pinned", h.foreign.pin)
}

func (h *hand) foreignLink() error {
	return h.s.OnNode(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: h.pod.Ifindex, Program: h.foreign.prog, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
		if err != nil {
			return err
		}
		h.links = append(h.links, l)
		return nil
	})
}

// replaced puts foreign objects in the place of our pins.
func replaced() []Damage {
	return []Damage{
		{Name: "another's program pinned as from_pod", Says: "pinned objects", do: func(h *hand) error {
			return pins.PinAtomic(h.foreign.prog, h.pins.Prog("from_pod"))
		}},
		{Name: "another's map pinned as pod_state", Says: "pinned objects", do: func(h *hand) error {
			return pins.PinAtomic(h.foreign.seen, h.pins.Map("pod_state"))
		}},
		{Name: "an empty map of our kind pinned as slots", Says: "pinned objects", do: func(h *hand) error {
			return h.emptyCopy("slots")
		}},
		{Name: "an empty map of our kind pinned as rules_out4", Says: "pinned objects", do: func(h *hand) error {
			return h.emptyCopy("rules_out4")
		}},
	}
}

func (h *hand) emptyCopy(name string) error {
	objects, err := bpf.Load(bpf.Sizes{Flows4: 1024, Flows6: 1024, Frags: 64})
	if err != nil {
		return err
	}
	defer objects.Close()
	return pins.PinAtomic(objects.Maps[name], h.pins.Map(name))
}

// All lists every damage.
func All() []Damage {
	var all []Damage
	for _, more := range [][]Damage{hooks(), bindings(), slots(), pinned(), records(), strangers(), replaced()} {
		all = append(all, more...)
	}
	return all
}
