package policydir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/shared/folder"
)

// list returns the names that can be manifests, sorted, and what somebody may take for read and is not.
func (r *Reader) list() (names []string, passed []apis.Problem, _ error) {
	entries, err := folder.Entries(r.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if isManifest(name) {
			names = append(names, name)
		}
		switch {
		case strings.HasPrefix(name, "."):
		case !e.Type().IsRegular() && hasManifest(filepath.Join(r.dir, name)):
			passed = append(passed, apis.Problem{File: name + "/", Message: "is a folder: the manifests in it are not read"})
		case !isManifest(name) && isNearlyManifest(name) && r.isSettled(name):
			passed = append(passed, apis.Problem{File: name, Message: "is not read: only names that end in .yaml, .yml or .json are"})
		}
	}
	return names, passed, nil
}

// isSettled tells whether a path is a file which is not on its way from one name to another.
func (r *Reader) isSettled(name string) bool {
	s, err := stampOf(filepath.Join(r.dir, name))
	age := time.Since(time.Unix(s.moved.Unix()))
	return err == nil && (age < 0 || age >= r.settle)
}

// hasManifest tells whether a path is a folder with a manifest in it.
func hasManifest(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return false
	}
	entries, _ := os.ReadDir(path) // what cannot be read would not be either
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() && isManifest(e.Name()) })
}

var extensions = []string{".yaml", ".yml", ".json"}

func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains(extensions, filepath.Ext(name))
}

// isNearlyManifest tells whether a name has the extension of manifests in other letters, or before another one that
// is not an editor's.
func isNearlyManifest(name string) bool {
	parts := strings.Split(strings.ToLower(name), ".")[1:]
	if len(parts) == 0 || slices.Contains([]string{"tmp", "swp", "swo", "swx"}, parts[len(parts)-1]) {
		return false
	}
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(extensions, "."+part) })
}
