package harness_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/probe"
	"github.com/latch-cni/latch/shared/testenv"
)

// The ground itself connects everyone, over every protocol that tests probe, and vanishes whole.
func TestGroundConnectsEveryoneAndLeavesNothing(t *testing.T) {
	testenv.RequireRoot(t)
	tools, err := harness.BuildTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tools.Remove() })
	g, err := harness.NewGround(harness.Config{Binaries: tools, WithoutLatch: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(g.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left over: %s", g.Dir)
		}
	})
	var ends []*probe.Endpoint
	open := func(name string, ns probe.Namespace, addrs ...netip.Addr) {
		for _, a := range addrs {
			e, err := probe.Open(name+" "+a.String(), ns, a)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(e.Close)
			ends = append(ends, e)
		}
	}
	open("node", g.NS, harness.GroundNode...)
	open("ext", g.Ext, harness.GroundExt...)
	open("ext", g.Ext, harness.GroundWorld...)
	for _, p := range []harness.Pod{harness.PodA, harness.PodB, harness.PodC, harness.PodD} {
		s, err := g.AddPod(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		open(p.Name, s.NS, p.Addrs...)
	}
	var probes []probe.Probe
	for _, from := range ends {
		for _, to := range ends {
			if from.Addr.Is4() != to.Addr.Is4() || from == to || from.Name[:3] == to.Name[:3] {
				continue
			}
			for _, target := range []probe.Target{{Proto: probe.TCP, Port: 8080}, {Proto: probe.UDP, Port: 53},
				{Proto: probe.SCTP, Port: 3868}, {Proto: probe.ICMP}, {Proto: 47}} {
				probes = append(probes, probe.Probe{From: from, To: to, Target: target})
			}
		}
	}
	got, err := probe.New().Round(probes, probe.Careful)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range got {
		if o != probe.Allowed {
			t.Errorf("%s -> %s %v: %v", probes[i].From.Name, probes[i].To.Name, probes[i].Target, o)
		}
	}
}
