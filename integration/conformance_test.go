package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/latch-cni/latch/integration/ready"
	"github.com/latch-cni/latch/integration/runner"
	"github.com/latch-cni/latch/integration/scenario"
	"github.com/latch-cni/latch/shared/testenv"
)

// scenariosEnv names files or directories, separated like a PATH, that are played besides what is
// committed.
const scenariosEnv = "LATCH_SCENARIOS"

// Every verdict of every scenario is what Kubernetes says, for real packets through the real chain. What
// is committed is fed in both ways; of what is named besides, which is much, each case in one of them.
func TestConformance(t *testing.T) {
	testenv.RequireRoot(t)
	committed, err := scenario.LoadAll("testdata/scenarios")
	if err != nil {
		t.Fatal(err)
	}
	more := others(t, committed)
	for i, mode := range []struct {
		name   string
		spread bool
	}{
		{"one file per step", false},
		{"one file per object", true},
	} {
		t.Run(mode.name, func(t *testing.T) {
			scenarios := slices.Clone(committed)
			for n := i; n < len(more); n += 2 {
				scenarios = append(scenarios, more[n])
			}
			played := 0
			opts := runner.Options{Binaries: ready.Build(t), Spread: mode.spread, Explain: runner.Explain}
			if testing.Short() { // an emulated machine: several nodes would keep each other from starting
				opts.Parallel, opts.Patience = 1, time.Minute
			}
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

// others loads what is named besides the committed scenarios.
func others(t *testing.T, committed []*scenario.Scenario) []*scenario.Scenario {
	t.Helper()
	paths := filepath.SplitList(os.Getenv(scenariosEnv))
	if len(paths) == 0 {
		return nil
	}
	all, err := scenario.LoadAll(paths...)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, s := range committed {
		known[s.ID] = true
	}
	return slices.DeleteFunc(all, func(s *scenario.Scenario) bool { return known[s.ID] })
}
