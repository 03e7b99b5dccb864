package policydir

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/manifest"
)

// maxSize bounds a file: in YAML, its tree takes up to 170 times as much memory. A policy of 100,000 peers
// with ports takes half of this.
const maxSize = 16 << 20

// FileState is what one file contributes.
type FileState struct {
	Objects  []manifest.Object // in force, kept ones included
	Kept     []apis.Ref        // objects of an earlier version that stay in force
	Broken   bool              // a part of the file cannot be used
	Problems []apis.Problem
	Ignored  []apis.Problem
}

// Snapshot is the content of the directory at one moment. It is shared: do not change it.
type Snapshot struct {
	Files    map[string]FileState // by base name
	Objects  []apis.Object        // in force, every Ref once, ordered by file and position
	Problems []apis.Problem       // of all files and of the directory

	// Unread says that a file has been broken since the first look: what it said before that, and what
	// may be in force of it, is not among the objects.
	Unread bool
}

// Reader reads the directory again and again, and remembers the last good version of each file. It is
// not safe for concurrent use.
type Reader struct {
	dir    string
	files  map[string]*file
	passed []string // folders with manifests that nobody reads
	looked bool
}

type file struct {
	sum    [sha256.Size]byte // of what was last read
	unread bool              // broken since the first look
	err    string            // of the last read
	state  FileState
}

// NewReader returns a Reader that has read nothing yet.
func NewReader(dir string) *Reader {
	return &Reader{dir: dir, files: map[string]*file{}}
}

// Read looks at all files and says whether anything differs from the last look. On an error nothing
// has changed.
func (r *Reader) Read() (changed bool, err error) {
	names, passed, err := list(r.dir)
	if err != nil {
		return false, fmt.Errorf("read policy directory: %w", err)
	}
	changed = !slices.Equal(passed, r.passed)
	r.passed = passed
	for name := range r.files {
		if _, there := slices.BinarySearch(names, name); !there { // sorted by list
			delete(r.files, name)
			changed = true
		}
	}
	for _, name := range names {
		f := r.files[name]
		data, sum, err := readFile(filepath.Join(r.dir, name), f.known())
		switch {
		case errors.Is(err, errNotAFile):
			if f != nil {
				delete(r.files, name)
				changed = true
			}
			continue
		case errors.Is(err, errSame), err != nil && f != nil && f.err == err.Error():
			continue
		case f == nil:
			f = &file{}
			r.files[name] = f
		}
		f.update(name, data, err)
		f.sum = sum
		f.unread = f.state.Broken && (f.unread || !r.looked)
		changed = true
	}
	r.looked = true
	return changed, nil
}

// known is the digest of what a file is known to hold, nil if nothing is.
func (f *file) known() *[sha256.Size]byte {
	if f == nil || f.err != "" {
		return nil
	}
	return &f.sum
}

// update takes over a new version of a file.
func (f *file) update(name string, data []byte, err error) {
	old := f.state.Objects
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
		if len(data) == 0 && len(old) > 0 {
			f.state.Broken = true
			f.state.Problems = []apis.Problem{{File: name, Message: "is empty; delete the file to take its objects away"}}
		}
	}
	if f.state.Broken {
		f.state.keep(old, name)
	}
}

// keep adds those objects of an earlier version that are not in this one.
func (s *FileState) keep(old []manifest.Object, name string) {
	have := map[apis.Ref]bool{}
	for _, o := range s.Objects {
		have[o.Ref] = true
	}
	for _, o := range old {
		if !have[o.Ref] {
			s.Objects = append(s.Objects, o)
			s.Kept = append(s.Kept, o.Ref)
		}
	}
	if len(s.Kept) > 0 {
		message := "stays in force as it was last read, while the file is broken"
		if more := len(s.Kept) - 1; more > 0 {
			message += fmt.Sprintf("; %d more of its objects do, too", more)
		}
		s.Problems = append(s.Problems, apis.Problem{File: name, Object: s.Kept[0].String(), Message: message})
	}
}

// Snapshot returns what is in force since the last Read.
func (r *Reader) Snapshot() Snapshot {
	s := Snapshot{Files: make(map[string]FileState, len(r.files))}
	from := map[apis.Ref]manifest.Object{}
	for _, name := range r.names() {
		state := r.files[name].state
		s.Unread = s.Unread || r.files[name].unread
		problems := slices.Clone(state.Problems)
		for _, o := range state.Objects {
			if first, ok := from[o.Ref]; ok {
				problems = append(problems, apis.Problem{
					Object: o.Ref.String(), File: name, Line: o.Line,
					Message: fmt.Sprintf("the same object is in %s, line %d, which is the one that counts", first.File, first.Line),
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
	for _, name := range r.passed {
		s.Problems = append(s.Problems, apis.Problem{File: name + "/", Message: "is a folder: the manifests in it are not read"})
	}
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

// list returns the names that can be manifests, and those of folders that hold some, sorted.
func list(dir string) (names, folders []string, _ error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if isManifest(e.Name()) {
			names = append(names, e.Name())
		}
		if !strings.HasPrefix(e.Name(), ".") && !e.Type().IsRegular() && hasManifest(filepath.Join(dir, e.Name())) {
			folders = append(folders, e.Name())
		}
	}
	return names, folders, nil
}

// hasManifest tells whether a path is a folder with a manifest in it.
func hasManifest(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return false
	}
	entries, _ := os.ReadDir(path) // what cannot be read would not be either
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() && isManifest(e.Name()) })
}

func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// errNotAFile means that there is nothing to read and nothing to complain about.
var errNotAFile = errors.New("is not a file")

// errSame means that a file holds what it is known to hold.
var errSame = errors.New("has not changed")

// readFile reads a regular file, through symbolic links, and returns its digest as well. One with the known
// digest, nil for none, is not kept in memory: every look reads all files. A name that is gone since the
// directory was listed is not a file; a symbolic link to nowhere is an error, since somebody put it there.
func readFile(path string, known *[sha256.Size]byte) (data []byte, sum [sha256.Size]byte, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, sum, errNotAFile
		}
		return nil, sum, errors.New("is a symbolic link to a file that does not exist")
	}
	if err != nil {
		return nil, sum, reason(err)
	}
	if info.IsDir() {
		return nil, sum, errNotAFile
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for a writer
		return nil, sum, errors.New("is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, sum, reason(err)
	}
	defer func() { _ = f.Close() }()
	if known != nil {
		h := sha256.New()
		if _, err := io.Copy(h, io.LimitReader(f, maxSize+1)); err != nil {
			return nil, sum, reason(err)
		}
		if *known == [sha256.Size]byte(h.Sum(nil)) {
			return nil, sum, errSame
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, sum, reason(err)
		}
	}
	text := bytes.NewBuffer(make([]byte, 0, min(info.Size(), maxSize)+bytes.MinRead))
	if _, err := text.ReadFrom(io.LimitReader(f, maxSize+1)); err != nil {
		return nil, sum, reason(err)
	}
	if text.Len() > maxSize {
		return nil, sum, fmt.Errorf("is longer than %d bytes", maxSize)
	}
	return text.Bytes(), sha256.Sum256(text.Bytes()), nil
}

// reason leaves the path out of an error: problems name the file already.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s: %w", path.Op, path.Err)
	}
	return err
}
