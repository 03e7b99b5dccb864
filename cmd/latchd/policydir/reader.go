package policydir

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/manifest"
	"github.com/latch-cni/latch/shared/state"
)

// FileState is what one file contributes.
type FileState struct {
	Objects  []manifest.Object // in force, kept ones included
	Kept     []apis.Ref        // objects of an earlier version that stay in force
	Broken   bool              // a part of the file cannot be used
	Problems []apis.Problem
	Ignored  []apis.Problem

	decoded int // of the problems, those of what was decoded
}

// Snapshot is the content of the directory at one moment. It is shared: do not change it.
type Snapshot struct {
	Files    map[string]FileState // by base name
	Objects  []apis.Object        // in force, every Ref once, ordered by file and position
	Problems []apis.Problem       // of all files and of the directory

	// Unread says that a file has been broken or empty since the first look, of this Reader or an earlier one, and
	// that nothing readable is kept of it: what it said before, and what may be in force of it, is not among the
	// objects.
	Unread bool
}

// Reader reads the directory again and again, and remembers the last good version of each file. It is
// not safe for concurrent use.
type Reader struct {
	dir     string
	files   map[string]*file
	passed  []apis.Problem // what looks like manifests and is not read
	looked  bool
	kept    state.Manifests      // for the next Reader of the directory, and of the one before
	keepErr error                // of forgetting what is kept of files that are gone
	calm    time.Duration        // a file that was written later is not read yet, up to patience
	settle  time.Duration        // a file that is not read is told once it has had its name for so long
	waiting map[string]time.Time // files that were not read for that, since when
}

// patience bounds how long a file that is written in place again and again is not read.
const patience = time.Second

type file struct {
	stamp  stamp             // before it was last read
	sure   bool              // no change can have left the stamp as it was
	sum    [sha256.Size]byte // of what was last read
	err    string            // of the last read
	unread error             // why it is not known what it said while it was whole: fs.ErrNotExist if nothing is kept
	state  FileState
}

// NewReader returns a Reader that has read nothing yet.
func NewReader(dir string) *Reader {
	return &Reader{dir: dir, files: map[string]*file{}, waiting: map[string]time.Time{}}
}

// Read reads all files and says whether anything differs from the last look. On an error nothing has changed.
func (r *Reader) Read() (changed bool, err error) { return r.read(true) }

// read is Read. Unless it is to be thorough, it passes over files that look as they did.
func (r *Reader) read(thorough bool) (changed bool, err error) {
	names, passed, err := r.list()
	if err != nil {
		return false, fmt.Errorf("read policy directory: %w", err)
	}
	names = r.withKnown(names)
	changed = !slices.Equal(passed, r.passed)
	r.passed = passed
	before := r.waiting
	r.waiting = map[string]time.Time{}
	looks := make([]look, 0, len(names))
	for _, name := range names {
		l := r.lookAt(name, thorough)
		switch {
		case l.same:
		case l.fresh && r.wait(name, before):
		default:
			looks = append(looks, l)
		}
	}
	// What has left a file may be in one that waits, and must not be out of force until that is read.
	hold := func(name string) bool { return r.wait(name, before) }
	if len(r.waiting) == 0 {
		hold = func(string) bool { return false }
	}
	for name := range r.files {
		if _, there := slices.BinarySearch(names, name); !there && !hold(name) { // sorted by list
			delete(r.files, name)
			changed = true
		}
	}
	for _, l := range looks {
		changed = r.readOne(l, hold) || changed
	}
	if changed || !r.looked {
		r.keepErr = r.kept.Retain(r.names())
	}
	r.looked = true
	return changed, nil
}

// withKnown adds the known files that are there and were not listed, since they are being replaced: what they say
// must not be out of force for an instant.
func (r *Reader) withKnown(names []string) []string {
	listed := len(names)
	for name := range r.files {
		if _, found := slices.BinarySearch(names[:listed], name); found {
			continue
		}
		if _, err := os.Lstat(filepath.Join(r.dir, name)); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// wait puts a file off to the next look, unless it has waited for long.
func (r *Reader) wait(name string, before map[string]time.Time) bool {
	since, waited := before[name]
	if !waited {
		since = time.Now()
	}
	if time.Since(since) >= patience {
		return false
	}
	r.waiting[name] = since
	return true
}

// look is what is seen of a file from outside.
type look struct {
	name  string
	stamp stamp
	sure  bool // no change after it can leave the stamp as it is
	err   error
	same  bool // it is as it was when it was read
	fresh bool // it may be in the middle of being written, or of a move to a name that was not there to be listed
}

func (r *Reader) lookAt(name string, thorough bool) look {
	f, l := r.files[name], look{name: name}
	if l.stamp, l.err = stampOf(filepath.Join(r.dir, name)); l.err != nil {
		l.fresh = f != nil && errors.Is(l.err, errGone)
		return l
	}
	l.sure = l.stamp.isOld()
	l.same = !thorough && f != nil && f.err == "" && f.sure && f.stamp == l.stamp
	age := l.stamp.age()
	l.fresh = r.looked && age >= 0 && age < r.calm
	return l
}

// readOne reads a file and says whether it differs from the last look. A version without some of its objects
// is not taken over while hold says so.
func (r *Reader) readOne(l look, hold func(name string) bool) bool {
	f, err := r.files[l.name], l.err
	var data []byte
	var sum [sha256.Size]byte
	if err == nil {
		data, sum, err = readFile(filepath.Join(r.dir, l.name), l.stamp.size, f.known())
	}
	switch {
	case errors.Is(err, errNotAFile):
		if f == nil || hold(l.name) {
			return false
		}
		delete(r.files, l.name)
		return true
	case errors.Is(err, errSame):
		f.stamp, f.sure = l.stamp, l.sure
		return false
	case err != nil && f != nil && f.err == err.Error():
		return false
	}
	next := &file{stamp: l.stamp, sure: l.sure, sum: sum}
	next.update(l.name, data, err, func() ([]manifest.Object, error) { return r.last(l.name) })
	if f != nil && len(missing(next.state.Objects, f.state.Objects)) > 0 && hold(l.name) {
		return false
	}
	r.keep(l.name, next)
	r.files[l.name] = next
	return true
}

// last is what a file said when it was looked at last. At the first look that is what the Reader before has
// kept of it. With an error that is not all that it said; fs.ErrNotExist means that nothing is kept of the rest.
func (r *Reader) last(name string) ([]manifest.Object, error) {
	if f := r.files[name]; f != nil {
		return f.state.Objects, f.unread
	}
	if r.looked {
		return nil, nil
	}
	text, err := r.kept.Read(name)
	if err != nil {
		return nil, reason(err)
	}
	text, isWhole := bytes.CutSuffix(text, endOfWhole)
	text, isPart := bytes.CutSuffix(text, endOfPart)
	c := manifest.Decode(name, text)
	switch {
	case !isWhole && !isPart:
		return nil, errors.New("is cut off") // a part of a policy may open more than none of it
	case len(c.Problems) > 0:
		return nil, errors.New(c.Problems[0].Message)
	case isPart:
		return c.Objects, fs.ErrNotExist
	}
	return c.Objects, nil
}

// What is kept of a file ends with one of these: that of a file of which no whole version is known with the second.
var endOfWhole, endOfPart = []byte("# end\n"), []byte("# end of what could be read\n")

// keep keeps what is in force of a file, for the next Reader. After an error the file is read again. What is kept and
// cannot be read stays, until a whole version of the file takes its place.
func (r *Reader) keep(name string, f *file) {
	nothingKept := errors.Is(f.unread, fs.ErrNotExist)
	if f.unread != nil && !nothingKept {
		return
	}
	end := endOfWhole
	if nothingKept {
		end = endOfPart
	}
	text, err := manifest.Encode(f.state.Objects)
	if err == nil {
		err = r.kept.Write(name, append(text, end...))
	}
	if err != nil {
		f.sum = [sha256.Size]byte{}
		f.state.Problems = append(f.state.Problems, apis.Problem{File: name, Message: fmt.Sprintf("what it says would not outlive a restart: %v", reason(err))})
	}
}

// missing are the objects of an earlier version that are not in this one.
func missing(objects, old []manifest.Object) (gone []manifest.Object) {
	have := map[apis.Ref]bool{}
	for _, o := range objects {
		have[o.Ref] = true
	}
	for _, o := range old {
		if !have[o.Ref] {
			gone = append(gone, o)
		}
	}
	return gone
}

// known is the digest of what a file is known to hold, nil if nothing is.
func (f *file) known() *[sha256.Size]byte {
	if f == nil || f.err != "" {
		return nil
	}
	return &f.sum
}

// update fills in what a version of a file says, after one that last returns the objects of.
func (f *file) update(name string, data []byte, err error, last func() ([]manifest.Object, error)) {
	old, lastErr := []manifest.Object(nil), error(nil)
	if err != nil {
		f.err = err.Error()
		f.state = FileState{Broken: true, Problems: []apis.Problem{{File: name, Message: err.Error()}}}
	} else {
		f.err = ""
		c := manifest.Decode(name, data)
		f.state = FileState{
			Objects: c.Objects, Problems: c.Problems, Ignored: c.Ignored,
			Broken: len(c.Problems) > 0,
		}
	}
	f.state.decoded = len(f.state.Problems)
	wrong := slices.ContainsFunc(f.state.Objects, func(o manifest.Object) bool { return len(o.Wrong) > 0 })
	if f.state.Broken || len(data) == 0 || wrong {
		old, lastErr = last()
	}
	if !f.state.Broken && len(data) == 0 && len(old) > 0 {
		f.state.Broken = true
		f.state.Problems = []apis.Problem{{File: name, Message: "is empty; delete the file to take its objects away"}}
	}
	if f.state.Broken || len(data) == 0 {
		f.unread = lastErr
	}
	if lastErr != nil && !errors.Is(lastErr, fs.ErrNotExist) {
		f.state.Problems = append(f.state.Problems, apis.Problem{File: name, Message: fmt.Sprintf("what it said before cannot be read: %v", lastErr)})
	}
	f.state.keep(old, name)
}

// Snapshot returns what is in force since the last Read.
func (r *Reader) Snapshot() Snapshot {
	s := Snapshot{Files: make(map[string]FileState, len(r.files))}
	from := map[apis.Ref]manifest.Object{}
	nowhere := r.nowhere()
	for _, name := range r.names() {
		state := r.files[name].state
		s.Unread = s.Unread || r.files[name].unread != nil
		problems := slices.Clone(state.Problems)
		for i := range problems[:state.decoded] {
			problems[i].Message += nowhere(problems[i], state)
		}
		for _, o := range state.Objects {
			if first, ok := from[o.Ref]; ok {
				problems = append(problems, apis.Problem{
					Object: o.Ref.String(), File: name, Line: o.Line,
					Message: "the same object is in " + placeOf(first) + ", which is the one that counts",
				})
				continue
			}
			from[o.Ref] = o
			s.Objects = append(s.Objects, o.Object)
		}
		state.Problems = problems
		s.Files[name] = state
		s.Problems = append(s.Problems, problems...)
		s.Problems = append(s.Problems, state.Ignored...)
	}
	if r.keepErr != nil {
		s.Problems = append(s.Problems, apis.Problem{File: r.dir, Message: fmt.Sprintf("what files that are gone said cannot be forgotten: %v", r.keepErr)})
	}
	s.Problems = append(s.Problems, r.passed...)
	return s
}

func (r *Reader) names() []string {
	names := make([]string, 0, len(r.files))
	for name := range r.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
