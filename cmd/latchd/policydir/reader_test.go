package policydir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/shared/state"
)

func namespace(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", name)
}

func labelled(name, label string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {v: %q}}\n", name, label)
}

// denies is a cluster policy's endpoints object with one rule.
func denies(name, label, cidr string) string {
	return fmt.Sprintf("apiVersion: networking.k8s.aws/v1alpha1\nkind: ClusterPolicyEndpoint\nmetadata: {name: %s, labels: {v: %q}}\n"+
		"spec: {tier: Admin, priority: 1, policyRef: {name: p},\n  ingress: [{action: Deny, cidr: %s}]}\n", name, label, cidr)
}

const broken = "kind: [\nx: }\n"

func docs(texts ...string) string { return strings.Join(texts, "---\n") }

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// have names the objects in force with their label, and the problems.
func have(s Snapshot) (objects, problems []string) {
	for _, o := range s.Objects {
		ref, _ := apis.RefOf(o)
		objects = append(objects, strings.TrimSuffix(ref.Name+"="+o.GetLabels()["v"], "="))
	}
	for _, p := range s.Problems {
		problems = append(problems, p.String())
	}
	return objects, problems
}

// TestReader edits files step by step and looks at what stays in force.
func TestReader(t *testing.T) {
	type step struct {
		name     string
		do       func(t *testing.T, dir string)
		objects  []string
		problems []string // substrings, in order
		same     bool     // nothing differs from the step before
	}
	put := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { write(t, dir, name, text) }
	}
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	nothing := func(*testing.T, string) {}
	tests := []struct {
		name  string
		steps []step
	}{
		{name: "created, edited, deleted", steps: []step{
			{name: "empty directory", do: nothing, same: true},
			{name: "file", do: put("a.yaml", docs(namespace("a"), namespace("b"))), objects: []string{"a", "b"}},
			{name: "nothing", do: nothing, objects: []string{"a", "b"}, same: true},
			{name: "one document less", do: put("a.yaml", labelled("a", "2")), objects: []string{"a=2"}},
			{name: "second file", do: put("b.json", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"b"}}`), objects: []string{"a=2", "b"}},
			{name: "third file", do: put("0.yml", namespace("z")), objects: []string{"z", "a=2", "b"}},
			{name: "first deleted", do: remove("a.yaml"), objects: []string{"z", "b"}},
		}},
		{name: "other names are passed over", steps: []step{
			{name: "all of them", same: true, do: func(t *testing.T, dir string) {
				for _, name := range []string{"a.txt", ".a.yaml", "a.yaml~", "yaml", "..a.yaml", "a.yaml.swp"} {
					write(t, dir, name, namespace("a"))
				}
				if err := os.Mkdir(filepath.Join(dir, "d.yaml"), 0o755); err != nil {
					t.Fatal(err)
				}
			}},
		}},
		{name: "a file that may be taken for a manifest is told", steps: []step{
			{name: "good", do: put("a.yaml", namespace("a")), objects: []string{"a"}},
			{name: "put aside", do: func(t *testing.T, dir string) {
				if err := os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "a.yaml.bak")); err != nil {
					t.Fatal(err)
				}
			}, problems: []string{"a.yaml.bak: is not read: only names that end in .yaml, .yml or .json are"}},
			{name: "nothing", do: nothing, problems: []string{"a.yaml.bak: "}, same: true},
			{name: "other letters", do: put("b.YAML", namespace("b")), problems: []string{"a.yaml.bak: ", "b.YAML: is not read"}},
			{name: "gone", do: remove("a.yaml.bak"), problems: []string{"b.YAML: "}},
		}},
		{name: "a folder with manifests is told", steps: []step{
			{name: "empty folder", same: true, do: func(t *testing.T, dir string) {
				if err := errors.Join(os.Mkdir(filepath.Join(dir, "team"), 0o755), os.Mkdir(filepath.Join(dir, ".git"), 0o755)); err != nil {
					t.Fatal(err)
				}
				write(t, dir, ".git/a.yaml", namespace("a"))
				write(t, dir, "team/README", "")
			}},
			{name: "manifest", do: put("team/a.yaml", namespace("a")), problems: []string{"team/: is a folder: the manifests in it are not read"}},
			{name: "nothing", do: nothing, problems: []string{"team/: "}, same: true},
			{name: "a link to it, and a file", do: func(t *testing.T, dir string) {
				if err := os.Symlink("team", filepath.Join(dir, "b")); err != nil {
					t.Fatal(err)
				}
				write(t, dir, "a.yaml", namespace("c"))
			}, objects: []string{"c"}, problems: []string{"b/: is a folder", "team/: is a folder"}},
			{name: "emptied", do: remove("team/a.yaml"), objects: []string{"c"}},
		}},
		{name: "a broken document keeps its object and no other", steps: []step{
			{name: "good", do: put("a.yaml", docs(labelled("a", "1"), labelled("b", "1"))), objects: []string{"a=1", "b=1"}},
			{name: "b broken, a edited", do: put("a.yaml", docs(labelled("a", "2"), broken)), objects: []string{"a=2", "b=1"},
				problems: []string{"a.yaml:6: did not find", "a.yaml: Namespace b: stays in force as it was last read"}},
			{name: "still broken, edited again", do: put("a.yaml", docs(labelled("a", "3"), broken)), objects: []string{"a=3", "b=1"},
				problems: []string{"a.yaml:6: did not find", "a.yaml: Namespace b: stays in force"}},
			{name: "mended", do: put("a.yaml", docs(labelled("a", "3"), labelled("b", "2"))), objects: []string{"a=3", "b=2"}},
			{name: "b taken out", do: put("a.yaml", labelled("a", "3")), objects: []string{"a=3"}},
		}},
		{name: "a mistyped field or kind is broken", steps: []step{
			{name: "good", do: put("a.yaml", docs(labelled("a", "1"), labelled("b", "1"))), objects: []string{"a=1", "b=1"}},
			{name: "labels mistyped", do: put("a.yaml", docs(labelled("a", "2"), strings.Replace(labelled("b", "2"), "labels", "lables", 1))), objects: []string{"a=2", "b=1"},
				problems: []string{`a.yaml:7: Namespace b: metadata.lables: is no field of this kind; did you mean "labels"?`, "a.yaml: Namespace b: stays in force as it was last read"}},
			{name: "kind mistyped", do: put("a.yaml", docs(labelled("a", "3"), strings.Replace(labelled("b", "3"), "Namespace", "namespace", 1))), objects: []string{"a=3", "b=1"},
				problems: []string{`a.yaml:6: namespace b: kind: "namespace" is not known; did you mean "Namespace"?`, "a.yaml: Namespace b: stays in force as it was last read"}},
			{name: "a field of a later version", do: put("a.yaml", docs(labelled("a", "4"), labelled("b", "4")+"later: 1\n")), objects: []string{"a=4", "b=4"},
				problems: []string{"a.yaml:8: Namespace b: later: is no field of this kind and is left out"}},
			{name: "another kind takes an object away", do: put("a.yaml", docs(labelled("a", "4"), strings.Replace(labelled("b", "4"), "Namespace", "Node", 1))), objects: []string{"a=4"},
				problems: []string{"a.yaml:5: Node b: Node of v1 is not a kind that matters here"}},
		}},
		{name: "a value that cannot be read leaves the earlier version in force", steps: []step{
			{name: "good", do: put("a.yaml", docs(denies("a", "1", "10.0.0.1"), namespace("b"))), objects: []string{"a=1", "b"}},
			{name: "mistyped, and b is taken out", do: put("a.yaml", denies("a", "2", "10.0.0.1O")), objects: []string{"a=1"},
				problems: []string{`a.yaml:5: ClusterPolicyEndpoint a: spec.ingress[0].cidr: "10.0.0.1O" is no block of addresses`, "a.yaml: ClusterPolicyEndpoint a: stays in force as it was last read"}},
			{name: "mistyped again", do: put("a.yaml", denies("a", "3", "10.0.0.1/33")), objects: []string{"a=1"},
				problems: []string{`a.yaml:5: ClusterPolicyEndpoint a: spec.ingress[0].cidr: "10.0.0.1/33"`, "a.yaml: ClusterPolicyEndpoint a: stays in force"}},
			{name: "broken, too", do: put("a.yaml", docs(denies("a", "4", "10.0.0"), broken)), objects: []string{"a=1"},
				problems: []string{"a.yaml:8: did not find", `a.yaml:5: ClusterPolicyEndpoint a: spec.ingress[0].cidr: "10.0.0"`, "a.yaml: ClusterPolicyEndpoint a: stays in force"}},
			{name: "mended", do: put("a.yaml", denies("a", "5", "10.0.0.2")), objects: []string{"a=5"}},
		}},
		{name: "without an earlier version it is in force", steps: []step{
			{name: "mistyped", do: put("a.yaml", denies("a", "1", "10.0.0.1O")), objects: []string{"a=1"}}, // package world tells of it
			{name: "mistyped again", do: put("a.yaml", denies("a", "2", "10.0.0")), objects: []string{"a=2"}},
			{name: "broken", do: put("a.yaml", strings.Replace(denies("a", "3", "10.0.0"), "cidr", "cird", 1)), objects: []string{"a=2"},
				problems: []string{"a.yaml:5: ClusterPolicyEndpoint a: spec.ingress[0].cird: ", "a.yaml: ClusterPolicyEndpoint a: stays in force"}},
			{name: "mended", do: put("a.yaml", denies("a", "4", "10.0.0.1")), objects: []string{"a=4"}},
		}},
		{name: "a file broken from the start", steps: []step{
			{name: "half good", do: put("a.yaml", docs(broken, namespace("b"))), objects: []string{"b"}, problems: []string{"a.yaml:2: did not find expected node content; nothing of it is in force"}},
			{name: "an object", do: put("a.yaml", docs(namespace("b"), strings.Replace(labelled("a", "1"), "labels", "lables", 1))), objects: []string{"b"},
				problems: []string{`did you mean "labels"?; nothing of this object is in force`}},
			{name: "beside one that is kept", do: put("a.yaml", docs("kind: namespace\n"+namespace("b")[15:], strings.Replace(labelled("a", "1"), "labels", "lables", 1))), objects: []string{"b"},
				problems: []string{`a.yaml:1: apiVersion or kind is missing`, `did you mean "labels"?; nothing of this object is in force`, "Namespace b: stays"}},
			{name: "in force by another file", do: put("0.yaml", namespace("a")), objects: []string{"a", "b"},
				problems: []string{"a.yaml:1: ", `did you mean "labels"?`, "Namespace b: stays"}},
			{name: "the other one deleted", do: remove("0.yaml"), objects: []string{"b"},
				problems: []string{"a.yaml:1: ", `nothing of this object is in force`, "Namespace b: stays"}},
			{name: "deleted", do: remove("a.yaml")},
		}},
		{name: "a broken file that is deleted loses everything", steps: []step{
			{name: "good", do: put("a.yaml", namespace("a")), objects: []string{"a"}},
			{name: "broken", do: put("a.yaml", broken), objects: []string{"a"}, problems: []string{"a.yaml:2", "a.yaml: Namespace a"}},
			{name: "deleted", do: remove("a.yaml")},
		}},
		{name: "cut to nothing, as writing in place starts", steps: []step{
			{name: "good", do: put("a.yaml", namespace("a")), objects: []string{"a"}},
			{name: "empty", do: put("a.yaml", ""), objects: []string{"a"}, problems: []string{"a.yaml: is empty", "a.yaml: Namespace a: stays"}},
			{name: "comment only", do: put("a.yaml", "# nothing\n")},
			{name: "empty without anything to lose", do: put("a.yaml", "")},
		}},
		{name: "the same object in two files", steps: []step{
			{name: "second file first", do: put("b.yaml", labelled("x", "b")), objects: []string{"x=b"}},
			{name: "both", do: put("a.yaml", docs(namespace("y"), labelled("x", "a"))), objects: []string{"y", "x=a"},
				problems: []string{"b.yaml:1: Namespace x: the same object is in a.yaml, line 5, which is the one that counts"}},
			{name: "first deleted", do: remove("a.yaml"), objects: []string{"x=b"}},
		}},
		{name: "what cannot be read stays as it was", steps: []step{
			{name: "good", do: put("a.yaml", namespace("a")), objects: []string{"a"}},
			{name: "link to nowhere", objects: []string{"a"}, problems: []string{"a.yaml: is a symbolic link to a file that does not exist", "a.yaml: Namespace a"},
				do: func(t *testing.T, dir string) {
					remove("a.yaml")(t, dir)
					if err := os.Symlink("nowhere", filepath.Join(dir, "a.yaml")); err != nil {
						t.Fatal(err)
					}
				}},
			{name: "pipe", objects: []string{"a"}, problems: []string{"a.yaml: is not a regular file", "a.yaml: Namespace a"},
				do: func(t *testing.T, dir string) {
					remove("a.yaml")(t, dir)
					if err := syscall.Mkfifo(filepath.Join(dir, "a.yaml"), 0o644); err != nil {
						t.Fatal(err)
					}
				}},
			{name: "directory", do: func(t *testing.T, dir string) {
				remove("a.yaml")(t, dir)
				if err := os.Mkdir(filepath.Join(dir, "a.yaml"), 0o755); err != nil {
					t.Fatal(err)
				}
			}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, kept := t.TempDir(), state.New(t.TempDir()).Manifests("d")
			r := NewReader(dir)
			r.kept = kept
			for _, s := range tt.steps {
				s.do(t, dir)
				// Restarted in the middle of it, and after it, there is the same in force.
				restarted := [2]*Reader{NewReader(dir), NewReader(dir)}
				readAgain := func(i int) {
					restarted[i].kept = kept
					if _, err := restarted[i].Read(); err != nil {
						t.Fatalf("%s: %v", s.name, err)
					}
				}
				readAgain(0)
				changed, err := r.Read()
				if err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				if changed == s.same {
					t.Errorf("%s: changed is %v", s.name, changed)
				}
				objects, problems := have(r.Snapshot())
				if diff := cmp.Diff(s.objects, objects); diff != "" {
					t.Errorf("%s: objects: want -, have +:\n%s", s.name, diff)
				}
				if !slices.EqualFunc(problems, s.problems, strings.Contains) {
					t.Errorf("%s: problems %q, want %q", s.name, problems, s.problems)
				}
				readAgain(1)
				slices.Sort(objects)
				for _, again := range restarted {
					after, problemsAfter := have(again.Snapshot())
					slices.Sort(after)
					if !slices.Equal(objects, after) || len(problems) != len(problemsAfter) {
						t.Errorf("%s: restarted, objects are %q, want %q; problems %q", s.name, after, objects, problemsAfter)
					}
				}
			}
		})
	}
}

// TestReaderWithoutDirectory keeps everything while the directory is away.
func TestReaderWithoutDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	r := NewReader(dir)
	if _, err := r.Read(); err == nil {
		t.Fatal("read a directory that does not exist")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a.yaml", namespace("a"))
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	before := r.Snapshot().Objects
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if changed, err := r.Read(); err == nil || changed {
		t.Errorf("changed %v, error %v after the directory went", changed, err)
	}
	if after := r.Snapshot().Objects; len(after) != 1 || after[0] != before[0] {
		t.Errorf("objects are %v, were %v", after, before)
	}
}

// TestReaderKeepsPointers lets a consumer see by pointer which objects did not change.
func TestReaderKeepsPointers(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", namespace("a"))
	write(t, dir, "b.yaml", namespace("b"))
	r := NewReader(dir)
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	before := r.Snapshot().Objects
	write(t, dir, "b.yaml", labelled("b", "2"))
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	after := r.Snapshot().Objects
	if after[0] != before[0] {
		t.Error("object of an unchanged file has another pointer")
	}
	if after[1] == before[1] {
		t.Error("object of a changed file has the old pointer")
	}
}

// Who replaces a file may do so by one that is named nearly as it.
func TestFileOnItsWayIsNotTold(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml.k3Xq9", namespace("a"))
	r := NewReader(dir)
	for _, test := range []struct {
		settle time.Duration
		told   int
	}{{time.Hour, 0}, {0, 1}} {
		r.settle = test.settle
		if _, err := r.Read(); err != nil || len(r.Snapshot().Problems) != test.told {
			t.Errorf("after %v: %v, %v", test.settle, r.Snapshot().Problems, err)
		}
	}
}
