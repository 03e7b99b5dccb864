package state

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A file that is far ahead of the clock is of before the clock was set back.
func TestSweepAfterTheClockWasSetBack(t *testing.T) {
	s := New(t.TempDir())
	for name, ago := range map[string]time.Duration{"new": 0, "old": time.Hour, "ahead": -time.Hour} {
		path := filepath.Join(s.Dir(), tempPrefix+name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-ago)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SweepTemp(time.Minute); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(s.Dir(), tempPrefix+"*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != tempPrefix+"new" {
		t.Errorf("left %v, %v; want the new one alone", left, err)
	}
}
