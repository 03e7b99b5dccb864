package testenv

import (
	"testing"
	"time"
)

// Eventually polls until check returns nil. When the time is up the test ends with the last error,
// which should say what the state is.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", timeout, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
