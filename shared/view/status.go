package view

import (
	"errors"
	"io/fs"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// Status is the node as a whole.
type Status struct {
	Node    string   `json:"node,omitempty"` // name, as latchd was told
	Mode    string   `json:"mode,omitempty"` // standard or strict, as latchd was told
	Layout  int      `json:"layout"`         // of the pinned objects that this build works with
	Layouts []int    `json:"layouts"`        // that are present
	Pins    string   `json:"pins"`           // folder
	Maps    int      `json:"maps"`           // pinned
	Progs   int      `json:"programs"`       // pinned
	Missing []string `json:"missing,omitempty"`
	Watcher Watcher  `json:"watcher"`
}

// Watcher is what latchd said of itself last. Enforcement does not depend on it.
type Watcher struct {
	Running  bool            `json:"running"`           // it is there, and has spoken within the last seconds
	Stopped  bool            `json:"stopped,omitempty"` // its process is not there
	Ready    bool            `json:"ready"`             // and all of the node is as policy says
	Message  string          `json:"message,omitempty"`
	Spoke    *time.Time      `json:"spoke,omitempty"` // when; none = never
	Problems []state.Problem `json:"problems,omitempty"`
}

// silence is how long latchd, which speaks every second, may be silent before it counts as down.
const silence = 5 * time.Second

// Status returns the node's state apart from its pods: all but what latchd says also with an error.
func (n *Node) Status() (Status, error) {
	s := Status{Layout: pins.Layout, Layouts: append([]int{}, n.layouts...), Pins: n.pins.Root(), Missing: n.missing}
	lost := map[string]bool{}
	for _, path := range n.missing {
		lost[path] = true
	}
	for _, name := range bpf.MapNames() {
		if !lost[n.pins.Map(name)] {
			s.Maps++
		}
	}
	for _, side := range attach.Sides {
		if !lost[n.pins.Prog(side.String())] {
			s.Progs++
		}
	}
	return s, n.watcher(&s)
}

func (n *Node) watcher(s *Status) error {
	said, err := n.store.ReadStatus()
	if errors.Is(err, fs.ErrNotExist) {
		s.Watcher.Message = "has never run here"
		return nil
	}
	if err != nil {
		s.Watcher.Message = "what it says cannot be read"
		return err
	}
	s.Node, s.Mode = said.Node, said.Mode
	s.Watcher = Watcher{Ready: said.Ready, Message: said.Message, Spoke: &said.UpdatedAt, Problems: said.Problems}
	held, err := lock.FolderHeld(n.store.Dir())
	if err != nil {
		return err
	}
	w := &s.Watcher
	w.Stopped = !held
	w.Running = held && time.Since(said.UpdatedAt).Abs() < silence
	switch {
	case w.Running:
		return nil
	case w.Stopped && !said.Stopped && said.Node != "": // without a name latchd has not come yet
		w.Message = "it ended without a word; what it left stays in force"
	case said.Ready:
		w.Message = "what it left stays in force"
	}
	w.Ready = false
	return nil
}
