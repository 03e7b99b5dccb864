package integration_test

import (
	"testing"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/ready"
)

func TestMain(m *testing.M) { ready.Main(m, harness.BinariesEnv, nil) }
