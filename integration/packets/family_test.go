package packets

import (
	"net/netip"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// family is the ground's addresses in one family.
type family struct {
	name       string
	a, b, c, d string // pods
	web, other string // outside
	router     string // the node's next hop
	node       string
	icmp       uint8 // protocol number
	bits       int
}

var v4 = family{name: "IPv4", a: testenv.PodA.Addr4, b: testenv.PodB.Addr4, c: testenv.PodC.Addr4, d: testenv.PodD.Addr4,
	web: testenv.ExtWeb4, other: testenv.ExtOther4, router: testenv.ExtAddr4, node: testenv.NodeAddr4, icmp: 1, bits: 32}

var v6 = family{name: "IPv6", a: testenv.PodA.Addr6, b: testenv.PodB.Addr6, c: testenv.PodC.Addr6, d: testenv.PodD.Addr6,
	web: testenv.ExtWeb6, other: "2001:db8:9::9", router: testenv.ExtAddr6, node: testenv.NodeAddr6, icmp: 58, bits: 128}

var families = []family{v4, v6}

// each runs a part of a test once for each family, on one ground.
func each(t *testing.T, g *ground, run func(t *testing.T, f family)) {
	t.Helper()
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			outer := g.t
			g.t = t
			defer func() { g.t = outer }()
			run(t, f)
		})
	}
}

// at is an address with a port.
func at(addr string, port int) string {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port)).String()
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
