// Package reference keeps docs/reference equal to the code. Tests only.
//
// A generated part of a document stands between two comments:
//
//	<!-- generated: NAME -->
//	...
//	<!-- end: NAME -->
//
// A test makes the text from the code and hands it to Check, which compares, or writes it with -update.
// What people wrote around it is theirs; Mentions finds out whether it names all that there is.
package reference

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated parts of docs/reference")

// Root is the folder of the module.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the working directory")
	return ""
}

func path(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(Root(t), "docs", "reference", name)
}

// Check compares a generated part of a document with what the code says now.
func Check(t testing.TB, document, part, want string) {
	t.Helper()
	raw, err := os.ReadFile(path(t, document))
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- generated: "+part+" -->\n", "<!-- end: "+part+" -->"
	before, rest, ok := strings.Cut(string(raw), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no part %q", document, part)
	}
	want = strings.TrimRight(want, "\n") + "\n"
	if got == want {
		return
	}
	if !*update {
		t.Errorf("%s is not what the code says; go test -update writes it (-document +code):\n%s", document, cmp.Diff(got, want))
		return
	}
	if err := os.WriteFile(path(t, document), []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Mentions makes sure that a document has a table row, with the name in backquotes first, for each
// name, and no row for anything else.
func Mentions(t testing.TB, document, heading string, names ...string) {
	t.Helper()
	raw, err := os.ReadFile(path(t, document))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(raw), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", document, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]bool{}
	for row := range strings.Lines(section) {
		if _, rest, ok := strings.Cut(row, "| `"); ok && strings.HasPrefix(row, "| `") {
			name, _, _ := strings.Cut(rest, "`")
			rows[name] = true
		}
	}
	for _, name := range names {
		if !rows[name] {
			t.Errorf("%s, %s: no row for %q", document, heading, name)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s, %s: a row for %q, which there is not", document, heading, name)
	}
}
