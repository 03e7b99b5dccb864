package plugin_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkAddDel is what one pod costs the runtime: both verbs of the built binary, from start to exit
// of its process, on a node whose programs are loaded and whose latchd was there before.
func BenchmarkAddDel(b *testing.B) {
	n := newNode(b)
	path := filepath.Join(n.bin, "latch")
	if err := os.Remove(path); err != nil {
		b.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/latch-cni/latch/cmd/latch")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	s := n.sandbox("web")
	n.publish(s)
	for _, mode := range []string{"auto", "clsact", "tcx"} {
		b.Run("mode="+mode, func(b *testing.B) {
			conf := n.netConf("1.0.0", s, map[string]any{"attachMode": mode})
			var add, del time.Duration
			for b.Loop() {
				start := time.Now()
				n.mustCall("ADD", s, conf)
				added := time.Now()
				n.mustCall("DEL", s, conf)
				add, del = add+added.Sub(start), del+time.Since(added)
			}
			b.ReportMetric(float64(add.Microseconds())/float64(b.N), "µs/ADD")
			b.ReportMetric(float64(del.Microseconds())/float64(b.N), "µs/DEL")
		})
	}
	b.Run("VERSION", func(b *testing.B) { // the process alone
		for b.Loop() {
			if _, cniErr := n.call("VERSION", nil, nil); cniErr != nil {
				b.Fatal(cniErr)
			}
		}
	})
}
