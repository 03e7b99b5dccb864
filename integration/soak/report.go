package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// report collects what held, what did not, and what was measured.
type report struct {
	Seed    uint64        `json:"seed"`
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took"`
	Held    int           `json:"held"`
	Broken  int           `json:"broken"`
	Lines   []line        `json:"lines"`
	Error   string        `json:"error,omitempty"`
	out     io.Writer
	mu      sync.Mutex
	current string
}

type line struct {
	Play string `json:"play"`
	What string `json:"what"`
	Text string `json:"text"`
	Bad  bool   `json:"bad,omitempty"`
}

func newReport(seed uint64, out io.Writer) *report {
	fmt.Fprintf(out, "seed %d\n", seed)
	return &report{Seed: seed, Began: time.Now(), out: out}
}

func (r *report) begin(play string) {
	r.current = play
	fmt.Fprintf(r.out, "%s\n", play)
}

// check notes whether a promise held. Safe to call by several goroutines, as figure is.
func (r *report) check(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.Held++
		return
	}
	r.Broken++
	r.add(line{r.current, what, err.Error(), true})
}

// figure notes something that was measured.
func (r *report) figure(what, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(line{Play: r.current, What: what, Text: fmt.Sprintf(format, args...)})
}

func (r *report) add(l line) {
	r.Lines = append(r.Lines, l)
	mark := " "
	if l.Bad {
		mark = "!"
	}
	fmt.Fprintf(r.out, "%s %-52s %s\n", mark, l.What, l.Text)
}

func (r *report) end(err error) {
	r.Took = time.Since(r.Began)
	if err != nil {
		r.Error = err.Error()
	}
	fmt.Fprintf(r.out, "%d promises held, %d broken, %v\n", r.Held, r.Broken, r.Took.Round(time.Second))
}

func (r *report) write(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o600)
}
