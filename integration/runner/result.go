package runner

import (
	"time"

	"github.com/latch-cni/latch/integration/scenario"
)

// Result is the outcome of one scenario.
type Result struct {
	ID    string        `json:"id"`
	File  string        `json:"file,omitempty"`
	Steps []StepResult  `json:"steps"`
	Took  time.Duration `json:"tookNanoseconds"`
	Error string        `json:"error,omitempty"` // the scenario could not be played to its end
}

// StepResult is the outcome of one step. Index -1 is the ground before the first.
type StepResult struct {
	Index       int           `json:"index"`
	Description string        `json:"description"`
	Cells       int           `json:"cells"`
	Control     int           `json:"control"` // verdicts between pods and their node
	Wrong       []Wrong       `json:"wrong,omitempty"`
	Settled     time.Duration `json:"settledNanoseconds"` // from the feed to the first right table
	Rounds      int           `json:"rounds"`
}

// Wrong is a verdict that is not as expected. Got may also be H: the request arrived, but its answer
// did not come back.
type Wrong struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Target string `json:"target"`
	Want   string `json:"want"`
	Got    string `json:"got"`
	Why    string `json:"why,omitempty"` // which rules decide, by the compiler
}

// Cells counts the asserted verdicts between pods.
func (r *Result) Cells() int {
	n := 0
	for _, s := range r.Steps {
		n += s.Cells
	}
	return n
}

// Wrong counts the verdicts that are not as expected.
func (r *Result) Wrong() int {
	n := 0
	for _, s := range r.Steps {
		n += len(s.Wrong)
	}
	return n
}

// OK says whether the scenario was played to its end and everything was as expected.
func (r *Result) OK() bool { return r.Error == "" && r.Wrong() == 0 }

// Explainer tells why a packet of a probe gets its verdict, for the output of a wrong one.
type Explainer func(st scenario.State, cell scenario.Cell) string
