package packets

import (
	"fmt"
	"os"
	"testing"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/testenv"
)

// attachMode is how the programs are attached, and bothModes whether only tests for both run.
var (
	attachMode = attach.ModeAuto
	bothModes  bool
)

func TestMain(m *testing.M) { testenv.Main(suite{m}) }

// suite runs all tests in the first mode, then those that depend on the mode in the other.
type suite struct{ *testing.M }

func (s suite) Run() int {
	if chosen := os.Getenv("LATCH_TEST_ATTACH"); chosen != "" {
		mode, err := attach.ParseMode(chosen)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		attachMode = mode
		return s.M.Run()
	}
	if code := s.M.Run(); code != 0 || attach.HaveTCX() != nil {
		return code
	}
	attachMode, bothModes = attach.ModeTCX, true
	fmt.Println("attached by tcx:")
	return s.M.Run()
}
