package plugin_test

import (
	"os/exec"
	"strings"
	"testing"
)

// The plugin is started once per pod: what it links, every pod waits for.
func TestPluginLinksNothingHeavy(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/latch-cni/latch/cmd/latch").Output()
	if err != nil {
		t.Fatal(err)
	}
	banned := []string{"k8s.io/", "sigs.k8s.io/", "github.com/spf13/", "go.yaml.in/", "github.com/prometheus/", "net/http", "google.golang.org/",
		"github.com/fsnotify/", "github.com/latch-cni/latch/cmd/latchd", "testing"}
	for pkg := range strings.FieldsSeq(string(out)) {
		for _, prefix := range banned {
			if strings.HasPrefix(pkg, prefix) {
				t.Errorf("latch links %s", pkg)
			}
		}
	}
}
