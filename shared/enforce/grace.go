package enforce

import (
	"sync"
	"time"

	"github.com/latch-cni/latch/shared/rules"
)

// grace shares the waits for RCU grace periods, which cost milliseconds on an idle machine and tens of them
// on a busy one: one that began after both of two things were freed is enough for both. The zero value is
// of use.
type grace struct {
	mu    sync.Mutex
	began time.Time // of the last wait that is over

	wait func() // tests: instead of rules.Quiesce
}

// after returns when no program can be reading any more what was freed at a time.
func (g *grace) after(freed time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.began.After(freed) {
		return // somebody else has waited meanwhile, or before
	}
	began := time.Now()
	if g.wait != nil {
		g.wait()
	} else {
		rules.Quiesce()
	}
	g.began = began
}
