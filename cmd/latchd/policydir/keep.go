package policydir

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/manifest"
)

// keep keeps what an earlier version of a file said in place of what is wrong with this one: objects with values that
// cannot be read, of which the earlier version is whole, and in a broken file those that are missing. The line of what
// is kept is not known any more.
func (s *FileState) keep(old []manifest.Object, name string) {
	for i, o := range s.Objects {
		if len(o.Wrong) == 0 {
			continue
		}
		at := slices.IndexFunc(old, func(before manifest.Object) bool { return before.Ref == o.Ref })
		if at < 0 || len(old[at].Wrong) > 0 {
			continue
		}
		s.Problems = append(s.Problems, o.Wrong...)
		s.Objects[i] = s.kept(old[at])
	}
	if s.Broken {
		for _, o := range missing(s.Objects, old) {
			s.Objects = append(s.Objects, s.kept(o))
		}
	}
	if len(s.Kept) == 0 {
		return
	}
	s.Broken = true
	message := "stays in force as it was last read, while the file is broken"
	if more := len(s.Kept) - 1; more > 0 {
		message += fmt.Sprintf("; %d more of its objects do, too", more)
	}
	s.Problems = append(s.Problems, apis.Problem{File: name, Object: s.Kept[0].String(), Message: message})
}

// kept notes an object of an earlier version that stays in force.
func (s *FileState) kept(o manifest.Object) manifest.Object {
	s.Kept = append(s.Kept, o.Ref)
	o.Line = 0
	return o
}

// nowhere returns what tells, of a problem that has left something out, whether nothing of that is in force: its object
// is in no file, nor kept, nor perhaps one of those that are kept.
func (r *Reader) nowhere() func(p apis.Problem, s FileState) string {
	inForce := map[string]bool{}
	for _, f := range r.files {
		if !f.state.Broken {
			continue
		}
		for _, f := range r.files {
			for _, o := range f.state.Objects {
				inForce[o.Ref.String()] = true
			}
		}
		break
	}
	return func(p apis.Problem, s FileState) string {
		kind, name, _ := strings.Cut(p.Object, " ")
		switch {
		case inForce[p.Object], inForce[kind+" "+metav1.NamespaceDefault+"/"+name], len(s.Kept) > 0 && (name == "" || !manifest.Knows(kind)):
			return ""
		case p.Object == "":
			return "; nothing of it is in force"
		}
		return "; nothing of this object is in force"
	}
}

// placeOf says where an object is written, as far as that is known.
func placeOf(o manifest.Object) string {
	if o.Line == 0 {
		return o.File
	}
	return fmt.Sprintf("%s, line %d", o.File, o.Line)
}
