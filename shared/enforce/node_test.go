package enforce

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/latch-cni/latch/bpf"
)

// What somebody else has made of the node's settings is found and mended by the next sweep.
func TestSweepMendsNodeSettings(t *testing.T) {
	g := newGround(t)
	own := netip.MustParseAddr(nodeAddr)
	want := NodeConfig{Addrs: []netip.Addr{own, netip.MustParseAddr("fd00::1")}, JudgeToNode: true, EventsDeny: true, Timeouts: bpf.DefaultTimeouts()}
	if err := g.e.SetNode(ctx, want); err != nil {
		t.Fatal(err)
	}
	n, addrs := g.e.objects.node.At(0), g.e.objects.maps["node_addrs"]
	for _, tt := range []struct {
		what   string
		damage func() error
	}{
		{"", func() error { return nil }},
		{"switches", func() error { atomic.StoreUint32(&n.Flags, bpf.NodeAddressIsNode); return nil }},
		{"timeout", func() error { atomic.StoreUint32(&n.Timeouts[bpf.TimeoutGrace], 77); return nil }},
		{"1 were missing, 0", func() error { return addrs.Delete(bpf.NewNodeAddr(own)) }},
		{"0 were missing, 1", func() error { return addrs.Put(bpf.NewNodeAddr(netip.MustParseAddr(podAddr)), uint8(1)) }},
	} {
		if err := tt.damage(); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{tt.what, ""} {
			swept, err := g.e.Sweep(ctx)
			if err != nil || (want == "") != (len(swept) == 0) || !strings.Contains(strings.Join(swept, ""), want) {
				t.Errorf("%s: swept %q, %v, want %q", tt.what, swept, err, want)
			}
		}
		missing, strange, err := g.e.objects.compareNodeAddrs(want.Addrs)
		if err != nil || len(missing)+len(strange) > 0 {
			t.Errorf("%s: addresses %v are missing, %v strange: %v", tt.what, missing, strange, err)
		}
		if n.Flags != want.flags() || n.Timeouts != want.Timeouts.Stamps() {
			t.Errorf("%s: the node has %+v", tt.what, *n)
		}
	}
}
