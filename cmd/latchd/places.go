package main

import (
	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/policydir"
)

// written is where an object is written.
type written struct {
	file  string
	line  int            // 0 if it is in an earlier version of the file
	lines map[string]int // of fields with problems
}

func placesOf(s policydir.Snapshot) map[string]written {
	places := make(map[string]written, len(s.Objects))
	for name, f := range s.Files {
		for _, o := range f.Objects {
			if at, twice := places[o.Ref.String()]; twice && name > at.file { // the first one counts
				continue
			}
			w := written{file: name, line: o.Line}
			for _, p := range o.Wrong {
				if w.lines == nil {
					w.lines = map[string]int{}
				}
				w.lines[p.Field] = p.Line
			}
			places[o.Ref.String()] = w
		}
	}
	return places
}

// placed completes a problem with an object by where the object is written.
func placed(p apis.Problem, places map[string]written) apis.Problem {
	at, ok := places[p.Object]
	if !ok || p.File != "" {
		return p
	}
	p.File, p.Line = at.file, at.line
	if at.line == 0 {
		p.Message += " (in an earlier version of the file, which is in force)"
	} else if line := at.lines[p.Field]; line > 0 {
		p.Line = line
	}
	return p
}
