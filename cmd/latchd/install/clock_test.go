package install

import (
	"context"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/state"
)

// What latchd said before the clock was set back is taken for old: nobody waits until the clock is there.
func TestStoppedBeforeTheClockWasSetBack(t *testing.T) {
	s := state.New(t.TempDir())
	if err := s.WriteStatus(state.Status{Ready: true, UpdatedAt: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := stopped(ctx, s.Dir()); err != nil {
		t.Error(err)
	}
}
