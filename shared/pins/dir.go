package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// Dir is the tree of pins of this layout below a bpffs.
type Dir struct {
	bpffs string
}

// New returns the tree below a folder on a bpffs. It does no I/O.
func New(bpffs string) Dir { return Dir{bpffs: bpffs} }

// Root is the folder of this layout.
func (d Dir) Root() string { return d.layout(Layout) }

// Prog is the path of a program's pin.
func (d Dir) Prog(name string) string { return filepath.Join(d.Root(), "prog", checked(name)) }

// Map is the path of a map's pin.
func (d Dir) Map(name string) string { return filepath.Join(d.Root(), checked(name)) }

// Link is the path of the pin of a link: pod is the pod id of an interface, s the side of the link.
func (d Dir) Link(pod uint32, s string) string {
	return filepath.Join(d.links(), strconv.FormatUint(uint64(pod), 10)+"_"+checked(s))
}

func (d Dir) tree() string        { return filepath.Join(d.bpffs, "latch") }
func (d Dir) layout(v int) string { return filepath.Join(d.tree(), "v"+strconv.Itoa(v)) }
func (d Dir) links() string       { return filepath.Join(d.Root(), "link") }

func (d Dir) folders() []string {
	return []string{d.Root(), filepath.Join(d.Root(), "prog"), d.links()}
}

// checked panics on a name that is not for bpffs: names are constants of the program, never input.
func checked(name string) string {
	ok := name != "" && !strings.HasPrefix(name, tempPrefix)
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_')
	}
	if !ok {
		panic(fmt.Sprintf("pins: name %q", name))
	}
	return name
}

// Make makes the folders. Safe to call again.
func (d Dir) Make() error {
	for _, f := range d.folders() {
		if err := os.MkdirAll(f, 0o700); err != nil {
			return fmt.Errorf("make folder for pins: %w", err)
		}
	}
	return nil
}

// Links returns the paths of all pins of links.
func (d Dir) Links() ([]string, error) {
	names, err := readDir(d.links())
	if err != nil {
		return nil, fmt.Errorf("list pins of links: %w", err)
	}
	var paths []string
	for _, n := range names {
		if !strings.HasPrefix(n, tempPrefix) {
			paths = append(paths, filepath.Join(d.links(), n))
		}
	}
	return paths, nil
}

// OtherMaps opens what is pinned as a map of this layout under none of the known names: maps of a build that
// came after this one. A pin that cannot be opened as a map is left out.
func (d Dir) OtherMaps(known []string) (map[string]*ebpf.Map, error) {
	names, err := readDir(d.Root())
	if err != nil {
		return nil, fmt.Errorf("list pins of maps: %w", err)
	}
	others := map[string]*ebpf.Map{}
	for _, n := range names {
		if slices.Contains(known, n) || strings.HasPrefix(n, tempPrefix) {
			continue
		}
		if m, err := LoadMap(filepath.Join(d.Root(), n), nil); err == nil { // not so for folders
			others[n] = m
		}
	}
	return others, nil
}

// Layouts returns the versions that are present, this one included, in rising order.
func (d Dir) Layouts() ([]int, error) {
	names, err := readDir(d.tree())
	if err != nil {
		return nil, fmt.Errorf("list layouts of pins: %w", err)
	}
	var found []int
	for _, n := range names {
		if v, err := strconv.Atoi(strings.TrimPrefix(n, "v")); err == nil && v > 0 && n == "v"+strconv.Itoa(v) {
			found = append(found, v)
		}
	}
	slices.Sort(found)
	return found, nil
}

// NewerLayouts returns the versions above this one: a newer build has been here.
func (d Dir) NewerLayouts() ([]int, error) {
	found, err := d.Layouts()
	return slices.DeleteFunc(found, func(v int) bool { return v <= Layout }), err
}

// OlderLayouts returns the versions below this one: an older build has been here.
func (d Dir) OlderLayouts() ([]int, error) {
	found, err := d.Layouts()
	return slices.DeleteFunc(found, func(v int) bool { return v >= Layout }), err
}

// SweepTemp removes temporary pins that a killed process left, those older than age.
func (d Dir) SweepTemp(age time.Duration) error {
	var errs []error
	for _, f := range d.folders() {
		names, err := readDir(f)
		errs = append(errs, err)
		for _, n := range names {
			p := filepath.Join(f, n)
			if st, err := os.Lstat(p); strings.HasPrefix(n, tempPrefix) && err == nil && time.Since(st.ModTime()).Abs() >= age {
				errs = append(errs, ignoreAbsent(os.Remove(p)))
			}
		}
	}
	return errors.Join(errs...)
}

// RemoveAll removes this layout with all its pins, and the tree when nothing else is in it. Nothing
// there is success.
func (d Dir) RemoveAll() error { return d.RemoveLayout(Layout) }

// RemoveLayout removes one layout with all its pins, and the tree when nothing else is in it.
func (d Dir) RemoveLayout(v int) error {
	if err := os.RemoveAll(d.layout(v)); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	names, err := readDir(d.tree())
	if err != nil {
		return fmt.Errorf("list layouts of pins: %w", err)
	}
	if len(names) > 0 {
		return nil
	}
	if err := ignoreAbsent(os.Remove(d.tree())); err != nil {
		return fmt.Errorf("remove pins: %w", err)
	}
	return nil
}

func readDir(p string) ([]string, error) {
	entries, err := os.ReadDir(p)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func ignoreAbsent(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
