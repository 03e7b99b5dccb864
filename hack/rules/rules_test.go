package rules

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/latch-cni/latch/"

// allowed lists, for each package of ours that must not import freely, what of ours it may import.
// A name stands for the package and what is below it.
var allowed = map[string][]string{
	"shared/policy":     {},
	"shared/identity":   {},
	"bpf":               {},
	"shared/lock":       {"shared/identity"},
	"shared/pins":       {"bpf"},
	"shared/rtnl":       {},
	"shared/folder":     {},
	"shared/state":      {"shared/identity", "shared/policy", "shared/folder"},
	"shared/attach":     {"bpf", "shared/pins", "shared/rtnl"},
	"shared/rules":      {"bpf", "shared/policy"},
	"shared/enforce":    {"bpf", "shared/attach", "shared/rules", "shared/pins", "shared/state", "shared/lock", "shared/identity", "shared/policy"},
	"shared/foreign":    {"shared/attach", "shared/pins"},
	"shared/cleanup":    {"shared/attach", "shared/enforce", "shared/identity", "shared/lock", "shared/pins", "shared/state"},
	"shared/view":       {"bpf", "shared/attach", "shared/foreign", "shared/rules", "shared/pins", "shared/state", "shared/lock", "shared/identity", "shared/policy"},
	"plugin":            {"bpf", "shared"},
	"cmd/latch":         {"plugin", "shared"},
	"cmd/latchd/world":  {"shared/identity", "shared/policy", "shared/near", "cmd/latchd/apis"},
	"cmd/latchd/apis":   {},
	"cmd/latchd/source": {"cmd/latchd/apis", "cmd/latchd/world"},
}

func TestImportsGoOneWay(t *testing.T) {
	for dir, files := range sources(t, false) {
		may, listed := allowed[dir]
		if !listed {
			continue
		}
		for _, file := range files {
			for _, imported := range imports(t, file) {
				ours, ok := strings.CutPrefix(imported, module)
				if !ok || ours == dir || within(ours, dir) {
					continue
				}
				if !anyWithin(ours, may) {
					t.Errorf("%s imports %s: package %s may import only %q of ours", file, ours, dir, may)
				}
			}
		}
	}
}

// The plugin is run once per pod and must start in milliseconds; client-go alone takes longer.
func TestSharedPackagesDoNotLinkKubernetes(t *testing.T) {
	for dir, files := range sources(t, false) {
		if !anyWithin(dir, []string{"plugin", "shared", "bpf", "cmd/latch"}) {
			continue
		}
		for _, file := range files {
			for _, imported := range imports(t, file) {
				if strings.HasPrefix(imported, "k8s.io/") || strings.HasPrefix(imported, "sigs.k8s.io/") {
					t.Errorf("%s imports %s: the plugin would link it", file, imported)
				}
			}
		}
	}
}

// Exactly one package turns the pod's direction into a hook of the host device, where ingress and
// egress are the other way round.
func TestOnlyAttachNamesHooks(t *testing.T) {
	hook := regexp.MustCompile(`HANDLE_MIN_INGRESS|HANDLE_MIN_EGRESS|HANDLE_CLSACT|AttachTCX(Ingress|Egress)|AttachTCX\b|QdiscTypeClsact|GenericQdisc|BpfFilter\b`)
	eachSource(t, func(dir, file string, text []byte) {
		if within(dir, "shared/attach") || within(dir, "hack") || strings.HasSuffix(file, "_test.go") {
			return
		}
		if within(dir, "integration/soak/damage") { // plays somebody else who is on our hooks
			return
		}
		if m := hook.Find(text); m != nil {
			t.Errorf("%s names %s: hooks are shared/attach's alone", file, m)
		}
	})
}

// A dump that a change interrupts (EINTR) is retried by netlinksafe only.
func TestNetlinkDumpsAreSafe(t *testing.T) {
	dump := regexp.MustCompile(`netlink\.(LinkList|AddrList|RouteList|FilterList|QdiscList|NeighList|RuleList|ConntrackTableList)\(`)
	eachSource(t, func(dir, file string, text []byte) {
		if within(dir, "hack") || strings.HasSuffix(file, "_test.go") || within(dir, "shared/testenv") || within(dir, "integration") {
			return
		}
		if m := dump.Find(text); m != nil {
			t.Errorf("%s calls %s: use netlinksafe", file, m)
		}
	})
}

// Whether a test may be skipped is decided in one place: in CI none may, but for features that the kernel
// is too old for.
func TestOnlyTestenvSkips(t *testing.T) {
	skip := regexp.MustCompile(`\.(Skip|Skipf|SkipNow)\(`)
	eachSource(t, func(dir, file string, text []byte) {
		if m := skip.Find(text); m != nil && !within(dir, "shared/testenv") && !within(dir, "hack") {
			t.Errorf("%s calls %s: use testenv.Missing or testenv.RequireKernel", file, m)
		}
	})
}

// The thread that asks may be in another namespace than the process.
func TestNobodyReadsTheProcessNamespace(t *testing.T) {
	eachSource(t, func(dir, file string, text []byte) {
		if !within(dir, "hack") && strings.Contains(string(text), "/proc/self/ns/net") {
			t.Errorf("%s reads /proc/self/ns/net: use /proc/thread-self/ns/net", file)
		}
	})
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for dir, files := range sources(t, false) {
		documented := false
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || (f.Doc != nil && len(f.Doc.Text()) > 60)
		}
		if !documented {
			t.Errorf("package %s has no package comment", dir)
		}
	}
}

// Nobody learns from a file that does not fit in a head.
func TestFilesAreShort(t *testing.T) {
	eachSource(t, func(_, file string, text []byte) {
		if n := strings.Count(string(text), "\n"); n > 400 && !strings.Contains(file, "_bpfel") {
			t.Errorf("%s has %d lines: split it by concept", file, n)
		}
	})
}

func eachSource(t *testing.T, fn func(dir, file string, text []byte)) {
	t.Helper()
	for dir, files := range sources(t, true) {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			fn(dir, file, text)
		}
	}
}

// sources lists the Go files of the project by folder, relative to its root.
func sources(t *testing.T, tests bool) map[string][]string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	byDir := map[string][]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin") && path != root {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || (!tests && strings.HasSuffix(path, "_test.go")) {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		byDir[dir] = append(byDir[dir], path)
		return err
	})
	if err != nil || len(byDir) == 0 {
		t.Fatalf("list sources: %v, %d folders", err, len(byDir))
	}
	return byDir
}

func imports(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func within(pkg, parent string) bool {
	return pkg == parent || strings.HasPrefix(pkg, parent+"/")
}

func anyWithin(pkg string, parents []string) bool {
	for _, p := range parents {
		if within(pkg, p) {
			return true
		}
	}
	return false
}
