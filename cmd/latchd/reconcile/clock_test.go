package reconcile

import (
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/state"
)

// Records have times of the wall clock. One that is ahead of it is of before the clock was set back, and
// waits for nothing.
func TestClockSetBack(t *testing.T) {
	for ago, want := range map[time.Duration]bool{0: false, promoteAge / 2: false, 2 * promoteAge: true, -time.Hour: true} {
		a := state.Attachment{Phase: state.PhaseEnforced, CreatedAt: time.Now().Add(-ago),
			Interfaces: []state.Interface{{Mode: string(attach.ModeClsact)}}}
		if promotable(a) != want {
			t.Errorf("made %v ago: promotable %v, want %v", ago, !want, want)
		}
	}
}
