package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/probe"
	"github.com/latch-cni/latch/shared/testenv"
)

var targets = []probe.Target{
	{Proto: probe.TCP, Port: 80}, {Proto: probe.UDP, Port: 80}, {Proto: probe.UDP, Port: 53}, {Proto: probe.SCTP, Port: 80}, {Proto: probe.ICMP},
}

// The prober must see denials: a rule of the node's routing takes packets from a to b away, so a
// never reaches b, and b reaches a but gets no answer.
func TestProberTellsDeniedAndHalfOpenFromAllowed(t *testing.T) {
	testenv.RequireRoot(t)
	tools, err := harness.BuildTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tools.Remove() })
	for _, family := range []struct{ name, node, pod string }{
		{"ipv4", "10.77.0.1", "10.77.1.%d"},
		{"ipv6", "fd77::1", "fd77::1:%d"},
	} {
		t.Run(family.name, func(t *testing.T) {
			node := netip.MustParseAddr(family.node)
			n, err := harness.NewNode(harness.Config{Addrs: []netip.Addr{node}, Binaries: tools, WithoutLatch: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := n.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
			ends := []*probe.Endpoint{open(t, "node", n.NS, node)}
			var a *harness.Sandbox
			for i, name := range []string{"a", "b", "c"} {
				addr := netip.MustParseAddr(fmt.Sprintf(family.pod, 10*(i+1)))
				s, err := n.AddPod(t.Context(), harness.Pod{Namespace: "x", Name: name, Addrs: []netip.Addr{addr}})
				if err != nil {
					t.Fatal(err)
				}
				ends = append(ends, open(t, name, s.NS, addr))
				if name == "a" {
					a = s
				}
			}
			p := probe.New()
			if diff := cmp.Diff([]string{" AAA", "A AA", "AA A", "AAA "}, table(t, p, ends)); diff != "" {
				t.Fatalf("without a rule (-want +got):\n%s", diff)
			}
			rule := blackhole(t, n, a.HostInterface(), ends[2].Addr)
			for range 5 {
				if diff := cmp.Diff([]string{" AAA", "A DA", "AH A", "AAA "}, table(t, p, ends)); diff != "" {
					t.Fatalf("with packets from a to b dropped (-want +got):\n%s", diff)
				}
			}
			if p.Late != 0 {
				t.Errorf("%d packets came after their round was judged", p.Late)
			}
			if len(p.Escaped) > 0 {
				t.Errorf("%v arrived, denied by no kept round", p.Escaped)
			}
			wantEscape(t, p, n, rule, ends, a)
		})
	}
}

// wantEscape has a packet of the last round arrive, which is kept, after the rule that held it up has gone.
func wantEscape(t *testing.T, p *probe.Prober, n *harness.Node, rule *netlink.Rule, ends []*probe.Endpoint, a *harness.Sandbox) {
	t.Helper()
	p.Keep()
	from, to := netip.AddrPortFrom(ends[1].Addr, p.LastPort()), netip.AddrPortFrom(ends[2].Addr, 80)
	if err := n.NS.Do(func() error { return netlink.RuleDel(rule) }); err != nil {
		t.Fatal(err)
	}
	err := a.NS.Do(func() error {
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("late"))
		return errors.Join(err, c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	table(t, p, ends)
	if diff := cmp.Diff([]string{"a -> b UDP/80"}, p.Escaped); diff != "" {
		t.Errorf("escaped (-want +got):\n%s", diff)
	}
}

func open(t *testing.T, name string, ns probe.Namespace, addr netip.Addr) *probe.Endpoint {
	t.Helper()
	e, err := probe.Open(name, ns, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// table probes everyone from everyone; all targets must agree.
func table(t *testing.T, p *probe.Prober, ends []*probe.Endpoint) []string {
	t.Helper()
	var probes []probe.Probe
	for _, from := range ends {
		for _, to := range ends {
			for _, target := range targets {
				if from != to {
					probes = append(probes, probe.Probe{From: from, To: to, Target: target})
				}
			}
		}
	}
	got, err := p.Round(probes, probe.Careful)
	if err != nil {
		t.Fatal(err)
	}
	letters := map[[2]*probe.Endpoint]byte{}
	for i, q := range probes {
		cell := [2]*probe.Endpoint{q.From, q.To}
		if l, found := letters[cell]; found && l != got[i].Letter() {
			t.Errorf("%s -> %s: %v is %v, other targets are %c", q.From.Name, q.To.Name, q.Target, got[i], l)
		}
		letters[cell] = got[i].Letter()
	}
	var rows []string
	for _, from := range ends {
		row := ""
		for _, to := range ends {
			if from == to {
				row += " "
				continue
			}
			row += string(letters[[2]*probe.Endpoint{from, to}])
		}
		rows = append(rows, row)
	}
	return rows
}

// blackhole makes the node drop what comes in on a host interface for dst.
func blackhole(t *testing.T, n *harness.Node, hostInterface string, dst netip.Addr) *netlink.Rule {
	t.Helper()
	rule := netlink.NewRule()
	rule.Family, rule.IifName, rule.Type, rule.Priority = unix.AF_INET, hostInterface, unix.FR_ACT_BLACKHOLE, 1
	rule.Dst = &net.IPNet{IP: dst.AsSlice(), Mask: net.CIDRMask(dst.BitLen(), dst.BitLen())}
	if dst.Is6() {
		rule.Family = unix.AF_INET6
	}
	err := n.NS.Do(func() error {
		// The reverse path check would ask the rule about packets of the other direction.
		files, err := filepath.Glob("/proc/sys/net/ipv4/conf/*/rp_filter")
		for _, f := range files {
			err = errors.Join(err, os.WriteFile(f, []byte("0"), 0))
		}
		if err != nil {
			return err
		}
		return netlink.RuleAdd(rule)
	})
	if err != nil {
		t.Fatalf("add blackhole rule: %v", err)
	}
	return rule
}
