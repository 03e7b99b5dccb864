package testenv

import (
	"os"
	"testing"
)

// RequireRoot ends the test unless it runs as root.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "needs root: network namespaces, bpf")
	}
}

// Missing ends a test that lacks its ground: a skip on a developer's machine, a failure in CI, so that
// nothing goes untested unseen.
func Missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("not skipped, since CI=true: %s", why)
	}
	t.Skip(why)
}
