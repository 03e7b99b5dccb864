package enforce

import (
	"testing"

	"github.com/latch-cni/latch/bpf"
)

// A node without a watcher has the timeouts that a watcher without flags would set.
func TestDefaultTimeoutsAreThoseOfFreshMaps(t *testing.T) {
	if got, want := DefaultTimeouts().stamps(), bpf.DefaultTimeouts(); got != want {
		t.Errorf("watcher's defaults %v, maps' %v", got, want)
	}
}
