package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// unpack reads a bundle.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "latch-dump/")] = string(raw)
	}
}

func TestDump(t *testing.T) {
	n := newNode(t)
	spec := testenv.PodA
	for _, redacted := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "dump.tar.gz")
		args := []string{"dump", "-o", file}
		if redacted {
			args = append(args, "--redact")
		}
		if code, out, errOut := n.run(args...); code != 0 || !strings.Contains(out, file) {
			t.Fatalf("exit code %d: %s%s", code, out, errOut)
		}
		files := unpack(t, file)
		for _, name := range []string{"status.json", "check.json", "doctor.json", "flows.json", "counters.json", "ebpf-progs.json", "ebpf-maps.json",
			"rules-" + spec.Namespace + "_" + spec.Name + ".json", "slots.json", "kernel.json", "records/node.json"} {
			if files[name] == "" {
				t.Errorf("no %s: %s", name, files["errors.txt"])
			}
		}
		all := ""
		for _, content := range files {
			all += content
		}
		for _, addr := range []string{spec.Addr4, spec.Addr6} {
			if strings.Contains(all, addr) == redacted {
				t.Errorf("redacted %v, and %s is there: %v", redacted, addr, !redacted)
			}
		}
		if !strings.Contains(all, spec.Name) {
			t.Error("names of pods are gone")
		}
	}
}

// What is missing makes the bundle smaller, not impossible.
func TestDumpOfNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	if code, _, errOut := call("dump", "-o", file, "--bpffs", t.TempDir(), "--state-dir", t.TempDir()); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	if files := unpack(t, file); files["errors.txt"] == "" || files["kernel.json"] == "" {
		t.Errorf("got %v", files)
	}
}

func TestRedact(t *testing.T) {
	r := &redactor{}
	const in = `{"a":"10.1.2.3","b":"10.1.2.0/24","c":"10.1.2.3:80","d":"fd00::1","e":"[fd00::1]:80","f":"0.0.0.0/0","g":"::/0","t":"2026-03-04T05:06:07Z","m":"::ffff:10.1.2.3","h":"a1b2c3"}`
	const want = `{"a":"ip4-1","b":"ip4-2/24","c":"ip4-1:80","d":"ip6-1","e":"[ip6-1]:80","f":"0.0.0.0/0","g":"::/0","t":"2026-03-04T05:06:07Z","m":"ip4-1","h":"a1b2c3"}`
	if got := string(r.redact([]byte(in))); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
