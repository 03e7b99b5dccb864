package packets

import (
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
