// Package doctor looks at everything around enforcement that can be wrong on a node: kernel, bpffs, CNI
// configuration, other programs on the pods' hooks, clocks, limits, latchd, logs. Whether each pod is in force
// is package view's to say; here it is one line.
//
// Each finding that is not ok says what to do about it. It only reads: no lock, no change, no program is
// loaded but those that probe the kernel's features.
package doctor

import (
	"fmt"

	"github.com/latch-cni/latch/shared/view"
)

// Level is how bad a finding is.
type Level string

// Levels. Only a failure makes the node unwell.
const (
	OK   Level = "ok"
	Note Level = "note" // worth knowing
	Warn Level = "warn" // works, and may not for long
	Fail Level = "fail"
)

// Finding is the answer of one check.
type Finding struct {
	Level   Level  `json:"level"`
	Check   string `json:"check"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// Options say where to look.
type Options struct {
	Bpffs, StateDir string
	ConfDir, BinDir string
	Proc, Sys       string // "/proc" and "/sys"
}

// exam collects findings.
type exam struct {
	Options
	node  *view.Node
	found []Finding
}

func (x *exam) add(l Level, check, fix, format string, args ...any) {
	x.found = append(x.found, Finding{l, check, fmt.Sprintf(format, args...), fix})
}

// Examine makes all checks.
func Examine(n *view.Node, o Options) []Finding {
	x := &exam{Options: o, node: n}
	x.kernel()
	x.bpffs()
	x.pins()
	x.configuration()
	x.plugin()
	x.otherAgents()
	x.latchd()
	x.pods()
	x.clock()
	x.limits()
	x.logs()
	return x.found
}

// Unwell tells whether anything has failed.
func Unwell(found []Finding) bool {
	for _, f := range found {
		if f.Level == Fail {
			return true
		}
	}
	return false
}
