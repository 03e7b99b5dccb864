package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// buildImage builds the Dockerfile, checks what it gives, and returns the archive.
func buildImage(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "latch.tar")
	out, err := exec.Command("../../hack/image", file, name, "test").CombinedOutput()
	if err != nil {
		t.Fatalf("build the image: %v: %s", err, out)
	}
	t.Logf("%s", out)
	checkImage(t, file)
	return file
}

// descriptor names a blob of an OCI archive.
type descriptor struct {
	Digest   string
	Platform struct{ Architecture, OS string }
}

// checkImage requires an image for each architecture that starts latchd and has nothing in it but the
// three binaries, static.
func checkImage(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, raw)
	read := func(d descriptor, into any) {
		t.Helper()
		if err := json.Unmarshal(files["blobs/"+strings.ReplaceAll(d.Digest, ":", "/")], into); err != nil {
			t.Fatalf("%s: %v", d.Digest, err)
		}
	}
	var top, list struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index %s: %v", files["index.json"], err)
	}
	read(top.Manifests[0], &list)
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	var built []string
	for _, d := range list.Manifests {
		built = append(built, d.Platform.OS+"/"+d.Platform.Architecture)
		var image struct {
			Config descriptor
			Layers []descriptor
		}
		read(d, &image)
		var config struct {
			Config struct{ Entrypoint []string }
		}
		read(image.Config, &config)
		if diff := cmp.Diff([]string{"/latchd"}, config.Config.Entrypoint); diff != "" {
			t.Errorf("entry point: %s", diff)
		}
		if len(image.Layers) != 1 {
			t.Fatalf("%d layers, want 1", len(image.Layers))
		}
		unpacked, err := gzip.NewReader(bytes.NewReader(files["blobs/"+strings.ReplaceAll(image.Layers[0].Digest, ":", "/")]))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatal(err)
		}
		binaries := untar(t, layer)
		if diff := cmp.Diff([]string{"latch", "latchctl", "latchd"}, slices.Sorted(maps.Keys(binaries))); diff != "" {
			t.Errorf("files of %s: %s", d.Platform.Architecture, diff)
		}
		for name, b := range binaries {
			if err := isStatic(b, machines[d.Platform.Architecture]); err != nil {
				t.Errorf("%s of %s: %v", name, d.Platform.Architecture, err)
			}
		}
	}
	slices.Sort(built)
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, built); diff != "" {
		t.Errorf("platforms: %s", diff)
	}
}

func isStatic(b []byte, machine elf.Machine) error {
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return err
	}
	if f.Machine != machine {
		return errors.New("it is for " + f.Machine.String())
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it needs a dynamic linker")
		}
	}
	return nil
}

// untar returns the files of an archive.
func untar(t *testing.T, raw []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
