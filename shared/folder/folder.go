// Package folder lists folders in which files are replaced while they are listed.
package folder

import (
	"cmp"
	"maps"
	"os"
	"slices"
)

// Entries lists a folder, sorted by name, and leaves out no file that is being replaced by rename. Such a
// file is there at every instant, and yet one listing may lack it: POSIX leaves that open, and a tmpfs does
// it. So the folder is listed until two times in a row bring nothing new. What has gone meanwhile may be
// among the entries. Errors are those of os.ReadDir.
func Entries(path string) ([]os.DirEntry, error) {
	found := map[string]os.DirEntry{}
	for same := 0; same < 2; same++ {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if found[e.Name()] == nil {
				found[e.Name()], same = e, -1
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b os.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) }), nil
}
