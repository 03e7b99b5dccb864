package health

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/reconcile"
	"github.com/latch-cni/latch/shared/state"
)

const (
	// statusSilence is how long the loop that writes the status, each second, may be silent. It needs
	// the locks of everything that latchd remembers, so it stands still when one of these does.
	statusSilence = 30 * time.Second
	// longestRun bounds one run for one identifier; the wait for locks is bounded by much less.
	longestRun = 5 * time.Minute
	// auditSilence comes on top of three periods of the audit.
	auditSilence = 2 * time.Minute
)

// Monitor answers /healthz and /readyz.
type Monitor struct {
	Inspector   *Inspector
	Progress    func() reconcile.Progress
	Status      func() state.Status // the node's, of which Reason is a part
	AuditPeriod time.Duration

	beat    atomic.Int64 // nanoseconds
	audited atomic.Int64 // when the audit began to be waited for
}

// Beat is called by the loop that writes the status.
func (m *Monitor) Beat() { m.beat.Store(time.Now().UnixNano()) }

// Reason says why the node is not ready, as far as the kernel is concerned; empty if it is.
func (m *Monitor) Reason() string {
	if !m.Progress().Adopted {
		return "verifying what is on the node"
	}
	return m.Inspector.Found().reason()
}

// Check is one thing that is looked at.
type Check struct {
	Name string
	Err  string // empty: fine
}

// Alive checks that the loops run.
func (m *Monitor) Alive() []Check {
	p := m.Progress()
	checks := []Check{{Name: "status"}, {Name: "workers"}, {Name: "audit"}}
	if silent := time.Since(time.Unix(0, m.beat.Load())); m.beat.Load() != 0 && silent > statusSilence {
		checks[0].Err = fmt.Sprintf("the status has not been written for %v", silent.Round(time.Second))
	}
	if p.Longest > longestRun {
		checks[1].Err = fmt.Sprintf("a run has not ended for %v", p.Longest.Round(time.Second))
	}
	if !p.Adopted {
		return checks // the audit has not begun
	}
	since := p.Audited
	if since.IsZero() {
		m.audited.CompareAndSwap(0, time.Now().UnixNano())
		since = time.Unix(0, m.audited.Load())
	}
	if silent := time.Since(since); silent > 3*m.AuditPeriod+auditSilence {
		checks[2].Err = fmt.Sprintf("no round of the audit has ended for %v", silent.Round(time.Second))
	}
	return checks
}

// Handler serves /healthz and /readyz.
func (m *Monitor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		checks := m.Alive()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		for _, c := range checks {
			if c.Err != "" {
				w.WriteHeader(http.StatusServiceUnavailable)
				break
			}
		}
		for _, c := range checks {
			if c.Err == "" {
				c.Err = "ok"
			}
			_, _ = fmt.Fprintf(w, "%s: %s\n", c.Name, c.Err)
		}
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		st := m.Status()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if !st.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintf(w, "not ready: %s\n", st.Message)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	return mux
}
