package foreign

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/netlinksafe"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/pins"
)

// AgentName is what messages call the agent.
const AgentName = "aws-network-policy-agent"

// Where the agent attaches, and what it calls its filters.
const (
	priority = 1
	handle   = 1
)

var names = []string{"handle_ingress", "handle_egress"}

// Agent is what is on the node of the other agent.
type Agent struct {
	Pins    string   `json:"pins"`    // folder of its pins; empty = none
	Filters []Filter `json:"filters"` // in force
}

// Filter is a filter of the other agent.
type Filter struct {
	Interface string      `json:"interface"`
	Ifindex   int         `json:"ifindex"`
	Side      attach.Side `json:"-"`
	attach.Other
}

// Find looks for the agent on the interfaces of this network namespace and below a bpffs.
func Find(bpffs string) (Agent, error) {
	var a Agent
	programs, err := pinned(bpffs)
	if err != nil {
		return a, err
	}
	if _, err := os.Stat(tree(bpffs)); err == nil {
		a.Pins = tree(bpffs)
	}
	links, err := netlinksafe.LinkList()
	if err != nil {
		return a, fmt.Errorf("look for another policy agent: list interfaces: %w", err)
	}
	for _, l := range links {
		for _, side := range attach.Sides {
			others, err := attach.Others(l.Attrs().Index, side)
			if errors.Is(err, attach.ErrGone) {
				break
			}
			if err != nil {
				return a, fmt.Errorf("look for another policy agent: %w", err)
			}
			for _, o := range others {
				if isTheirs(o, programs) {
					a.Filters = append(a.Filters, Filter{Interface: l.Attrs().Name, Ifindex: l.Attrs().Index, Side: side, Other: o})
				}
			}
		}
	}
	return a, nil
}

// Active tells whether the agent has anything in force on an interface.
func (a Agent) Active() bool { return len(a.Filters) > 0 }

// String names the agent, where it is in force, and its pins.
func (a Agent) String() string {
	if !a.Active() {
		return AgentName + ": nothing in force"
	}
	var devices []string
	seen := map[string]bool{}
	for _, f := range a.Filters {
		if !seen[f.Interface] {
			seen[f.Interface] = true
			devices = append(devices, f.Interface)
		}
	}
	const shown = 3
	list := strings.Join(devices[:min(shown, len(devices))], ", ")
	if more := len(devices) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	s := fmt.Sprintf("%s is in force on %s by filters at priority %d handle %d", AgentName, list, priority, handle)
	if a.Pins != "" {
		s += ", with pins in " + a.Pins
	}
	return s
}

// isTheirs takes a filter in the agent's place whose program the agent has pinned, or that has the name
// which the agent gives: its pins may be lost.
func isTheirs(o attach.Other, programs map[uint32]bool) bool {
	if o.Priority != priority || o.Handle != handle {
		return false
	}
	if programs[o.ProgID] {
		return true
	}
	for _, n := range names {
		if o.Name == n {
			return true
		}
	}
	return false
}

// tree is the folder that the agent pins in.
func tree(bpffs string) string { return filepath.Join(bpffs, "globals", "aws") }

// pinned returns the ids of the programs that the agent has pinned.
func pinned(bpffs string) (map[uint32]bool, error) {
	dir := filepath.Join(tree(bpffs), "programs")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for another policy agent: %w", err)
	}
	ids := map[uint32]bool{}
	for _, e := range entries {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(dir, e.Name()), nil)
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("look for another policy agent: %w", err)
		}
		if err != nil { // unpinned since, or no program
			continue
		}
		id, err := programID(p)
		if err != nil {
			return nil, err
		}
		ids[id] = true
	}
	return ids, nil
}

// programID returns the id of a program and closes it.
func programID(p *ebpf.Program) (uint32, error) {
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return 0, fmt.Errorf("program: %w", err)
	}
	id, ok := info.ID()
	if !ok {
		return 0, errors.New("program: the kernel tells no id")
	}
	return uint32(id), nil
}

// ours returns the ids of the programs of Latch that are pinned on the node.
func ours(bpffs string) (map[attach.Side]uint32, error) {
	ids := map[attach.Side]uint32{}
	for _, side := range attach.Sides {
		p, err := pins.LoadProgram(pins.New(bpffs).Prog(side.String()), nil)
		if err != nil {
			return nil, err
		}
		if ids[side], err = programID(p); err != nil {
			return nil, err
		}
	}
	return ids, nil
}
