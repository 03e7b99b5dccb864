package enforce

import (
	"os"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv("LATCH_TEST_WRITER") != "" {
		os.Exit(m.Run()) // a process of a test, which holds the suite's lock
	}
	testenv.Main(m)
}
