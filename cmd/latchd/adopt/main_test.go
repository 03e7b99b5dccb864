package adopt

import (
	"net"
	"net/netip"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type errDiff string

func (e errDiff) Error() string { return string(e) }

func netUDP(s string) *net.UDPAddr { return net.UDPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
