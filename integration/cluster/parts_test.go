package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// partsEnv names the folder that has, or gets, the parts of a cluster in folders of their own.
const partsEnv = "LATCH_PARTS"

const scripts = "../../hack/parts"

// k8sDir is the folder with kube-apiserver, etcd and kubelet.
func k8sDir() string {
	version, err := os.ReadFile(filepath.Join(scripts, "k8s-version"))
	if err != nil {
		panic(err)
	}
	return filepath.Join(partsDir(), "k8s-"+strings.TrimSpace(string(version)))
}

func partsDir() string {
	if dir := os.Getenv(partsEnv); dir != "" {
		return dir
	}
	return "/var/cache/latch"
}

// buildParts builds what is missing, which takes long: in CI only.
func buildParts() error {
	if os.Getenv("CI") != "true" {
		return nil
	}
	for script, dir := range map[string]string{"build-k8s.sh": k8sDir(), "build-runtime.sh": runtimeDir()} {
		cmd := exec.Command(filepath.Join(scripts, script), dir)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", script, err)
		}
	}
	return nil
}

// runtimeDir is the folder with containerd, runc, crictl and the images of test pods.
func runtimeDir() string { return filepath.Join(partsDir(), "runtime") }

// part is the path of a built program. A test that lacks it is skipped.
func part(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		script := "build-k8s.sh"
		if dir == runtimeDir() {
			script = "build-runtime.sh"
		}
		testenv.Missing(t, fmt.Sprintf("needs %s: run hack/parts/%s %s, once, for a quarter of an hour", path, script, dir))
	}
	return path
}
