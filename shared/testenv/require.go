package testenv

import (
	"os"
	"testing"

	"github.com/cilium/ebpf/features"
)

// RequireRoot ends the test unless it runs as root.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "needs root: network namespaces, bpf")
	}
}

// TCXVersion is the first kernel with tcx, for RequireKernel.
const TCXVersion = 6<<16 | 6<<8

// RequireKernel ends the test if err says that the kernel lacks something: a skip on a kernel older than
// the one that brought it (major<<16 | minor<<8, as KERNEL_VERSION of the kernel's headers), a failure on
// any other.
func RequireKernel(t testing.TB, since uint32, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if version, e := features.LinuxVersionCode(); e != nil || version >= since {
		t.Fatalf("kernel %#x: %v, %v", version, err, e)
	}
	t.Skip(err)
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

// Repeated ends a test in a further run of a suite, when what differs from the first makes no difference to
// it. It has run.
func Repeated(t testing.TB, why string) {
	t.Helper()
	t.Skip(why)
}
