package packets

import (
	"bytes"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// A node that honours source routes would send on what a pod may send to the node itself (D8) to
// wherever the pod names.
func TestSourceRouteIsNoWayAround(t *testing.T) {
	g := newGround(t, options{mute: true})
	g.Node.Sysctl(t, "net.ipv4.conf.all.accept_source_route", "1")
	a := g.pod(testenv.PodA, "E")
	b := g.pod(testenv.PodB, "")
	for _, p := range []*pod{b, a} {
		g.Node.Sysctl(t, "net.ipv4.conf."+p.HostName+".accept_source_route", "1")
		mark := []byte("by way of the node, from " + p.Spec.Name)
		seen := g.Ext.Capture(t, "eth0", func(f []byte) bool { return bytes.Contains(f, mark) })
		src := p.Addr4.String()
		route := shot{family: v4}.options(testenv.UDP(at(src, 5000), at(v4.node, 53), mark...), 131, 7, 4, 203, 0, 113, 9)
		before := g.drops()
		if err := p.out.Send(testenv.WithMAC(route, p.mac, p.via)); err != nil {
			t.Fatal(err)
		}
		if p == b { // control: a pod without policy gets its packet sent on
			seen.WaitCount(t, 1, patience)
			continue
		}
		time.Sleep(100 * time.Millisecond)
		if n := seen.Count(); n != 0 || newDrops(before, g.drops()) != "malformed" {
			t.Errorf("source route of a pod that may send to nobody: arrived %d times, dropped %q", n, newDrops(before, g.drops()))
		}
	}
}
