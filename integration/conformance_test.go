package integration_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/latch-cni/latch/integration/ready"
	"github.com/latch-cni/latch/integration/runner"
	"github.com/latch-cni/latch/integration/scenario"
	"github.com/latch-cni/latch/shared/testenv"
)

// scenariosEnv names files or directories, separated like a PATH, that are played instead of the
// committed sample.
const scenariosEnv = "LATCH_SCENARIOS"

// Every verdict of every scenario is what Kubernetes says, for real packets through the real chain.
func TestConformance(t *testing.T) {
	testenv.RequireRoot(t)
	paths := []string{"testdata/scenarios"}
	if env := os.Getenv(scenariosEnv); env != "" {
		paths = filepath.SplitList(env)
	}
	scenarios, err := scenario.LoadAll(paths...)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []struct {
		name   string
		spread bool
	}{
		{"one file per step", false},
		{"one file per object", true},
	} {
		t.Run(mode.name, func(t *testing.T) {
			played := 0
			opts := runner.Options{Binaries: ready.Build(t), Spread: mode.spread, Explain: runner.Explain}
			err := runner.Run(t.Context(), opts, scenarios, func(r runner.Result) {
				played++
				if r.Error != "" {
					t.Errorf("%s: %s", r.ID, r.Error)
				}
				for _, s := range r.Steps {
					for _, w := range s.Wrong {
						t.Errorf("%s step %d (%s): %s -> %s %s: want %s, got %s\n%s", r.ID, s.Index, s.Description, w.From, w.To, w.Target, w.Want, w.Got, w.Why)
					}
				}
			})
			if err != nil {
				t.Error(err)
			}
			if played != len(scenarios) {
				t.Errorf("played %d of %d scenarios", played, len(scenarios))
			}
		})
	}
}
