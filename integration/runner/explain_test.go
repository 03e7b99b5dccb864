package runner_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/latch-cni/latch/integration/runner"
	"github.com/latch-cni/latch/integration/scenario"
)

// For every asserted cell of the sample the compiler explains the very verdict that the table wants: the
// flow is allowed if and only if both ends allow it.
func TestExplainAgreesWithTheTables(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(samples, "e2e-*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	scenarios, err := scenario.LoadAll(files...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		for i := range s.Steps {
			st := s.State(i)
			for _, c := range st.Expect.Cells() {
				why := runner.Explain(st, c)
				if got := strings.Count(why, ": allow by") == 2; got != (c.Want == scenario.Allow) {
					t.Errorf("%s step %d %s -> %s %v: want %c, explained as\n%s", s.ID, i, c.From, c.To, c.Target, c.Want, why)
				}
			}
		}
	}
}
