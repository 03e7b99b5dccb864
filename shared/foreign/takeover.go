package foreign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/latch-cni/latch/shared/attach"
)

// Watcher looks for the other agent again and again, and takes over from it if it may.
type Watcher struct {
	Bpffs    string
	TakeOver bool
	Log      *slog.Logger

	mu      sync.Mutex
	problem string
}

// Periods of looking: while there is something to take over, and else.
const (
	busy = time.Second
	idle = 15 * time.Second
)

// Run looks until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	for {
		period := idle
		done, err := w.look()
		if err != nil || !done {
			period = busy
		}
		w.note(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		}
	}
}

// Problem says what is wrong, empty if nothing is.
func (w *Watcher) Problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

func (w *Watcher) note(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if said != w.problem && said != "" {
		w.Log.Error("another policy agent", "error", said)
	}
	w.problem = said
}

// look reports true when nothing of the other agent is left, or nothing is to be done about it.
func (w *Watcher) look() (bool, error) {
	a, err := Find(w.Bpffs)
	if err != nil {
		return false, err
	}
	if !w.TakeOver {
		return true, Refuse(a)
	}
	if !a.Active() && a.Pins == "" {
		return true, nil
	}
	left, err := TakeOver(w.Bpffs, a)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%s: its filters stay until Latch is in force there", Agent{Pins: a.Pins, Filters: left})
	}
	if err == nil {
		w.Log.Info("took over", "from", AgentName, "filters", len(a.Filters), "pins", a.Pins)
	}
	return err == nil, err
}

// Refuse returns an error if the agent is in force: what is to be done about it is the operator's
// decision.
func Refuse(a Agent) error {
	if !a.Active() {
		return nil
	}
	return fmt.Errorf("%s: switch that agent off, then start latchd with --take-over", a)
}

// TakeOver takes the agent's filters off the interfaces on which Latch is in front on both sides. When
// none is left anywhere it removes the agent's pins. It returns the filters that stay because Latch is
// not in force there yet; call it again then. The caller is in the network namespace of the interfaces.
func TakeOver(bpffs string, a Agent) (left []Filter, err error) {
	progs, err := ours(bpffs)
	if err != nil {
		return a.Filters, fmt.Errorf("take over from %s: %w", AgentName, err)
	}
	var errs []error
	for _, f := range a.Filters {
		switch err := attach.Evict(f.Ifindex, f.Side, f.Other, progs); {
		case errors.Is(err, attach.ErrGone):
		case errors.Is(err, attach.ErrConflict):
			left = append(left, f)
		case err != nil:
			left, errs = append(left, f), append(errs, err)
		}
	}
	if len(errs) > 0 {
		return left, fmt.Errorf("take over from %s: %w", AgentName, errors.Join(errs...))
	}
	if len(left) > 0 {
		return left, nil
	}
	now, err := Find(bpffs) // it may have attached meanwhile
	if err != nil || now.Active() {
		return now.Filters, err
	}
	return nil, removePins(bpffs)
}

// removePins removes the agent's tree of pins, and the folder above it if nothing else is in it.
func removePins(bpffs string) error {
	if err := os.RemoveAll(tree(bpffs)); err != nil {
		return fmt.Errorf("remove pins of %s: %w", AgentName, err)
	}
	_ = os.Remove(filepath.Dir(tree(bpffs))) // fails if others pin there
	return nil
}
