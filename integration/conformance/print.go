package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/latch-cni/latch/integration/runner"
)

// maxWrong bounds the wrong verdicts printed per step without -v.
const maxWrong = 5

// printer writes results as they come and counts them.
type printer struct {
	to            io.Writer
	verbose, json bool

	started                                          time.Time
	scenarios, failed, steps, cells, controls, wrong int
	settled                                          []time.Duration
}

func (p *printer) begin(scenarios int) {
	p.started = time.Now()
	if !p.json {
		fmt.Fprintf(p.to, "%d scenarios\n\n%-44s %5s %6s %5s %8s\n", scenarios, "SCENARIO", "STEPS", "CELLS", "WRONG", "TIME")
	}
}

func (p *printer) scenario(r runner.Result) {
	p.count(&r)
	if p.json {
		_ = json.NewEncoder(p.to).Encode(r)
		return
	}
	mark := ""
	if !r.OK() {
		mark = "  FAIL"
	}
	fmt.Fprintf(p.to, "%-44s %5d %6d %5d %8s%s\n", r.ID, len(r.Steps)-1, r.Cells(), r.Wrong(), r.Took.Round(10*time.Millisecond), mark)
	for _, s := range r.Steps {
		p.step(s)
	}
	if r.Error != "" {
		fmt.Fprintf(p.to, "    error: %s\n", indent(r.Error, "           "))
	}
}

func (p *printer) step(s runner.StepResult) {
	if p.verbose || len(s.Wrong) > 0 {
		fmt.Fprintf(p.to, "    step %d: %s: %d cells, settled after %s, %d rounds\n",
			s.Index, s.Description, s.Cells, s.Settled.Round(time.Millisecond), s.Rounds)
	}
	for i, w := range s.Wrong {
		if i == maxWrong && !p.verbose {
			fmt.Fprintf(p.to, "      and %d more\n", len(s.Wrong)-i)
			break
		}
		fmt.Fprintf(p.to, "      %s -> %s %s: want %s, got %s\n", w.From, w.To, w.Target, w.Want, w.Got)
		if w.Why != "" {
			fmt.Fprintf(p.to, "        %s\n", indent(w.Why, "        "))
		}
	}
}

func (p *printer) count(r *runner.Result) {
	p.scenarios++
	p.steps += max(0, len(r.Steps)-1)
	p.cells += r.Cells()
	p.wrong += r.Wrong()
	if !r.OK() {
		p.failed++
	}
	for _, s := range r.Steps {
		p.controls += s.Control
		if s.Index >= 0 && s.Settled > 0 {
			p.settled = append(p.settled, s.Settled)
		}
	}
}

func (p *printer) end() {
	if p.json {
		return
	}
	fmt.Fprintf(p.to, "\n%d scenarios, %d steps, %d cells between pods and %d with the node in %s: %d failed, %d wrong\n",
		p.scenarios, p.steps, p.cells, p.controls, time.Since(p.started).Round(time.Second), p.failed, p.wrong)
	if n := len(p.settled); n > 0 {
		slices.Sort(p.settled)
		fmt.Fprintf(p.to, "a step was in force after %s (median), %s (slowest)\n",
			p.settled[n/2].Round(time.Millisecond), p.settled[n-1].Round(time.Millisecond))
	}
}

func indent(s, by string) string { return strings.ReplaceAll(s, "\n", "\n"+by) }
