package adopt

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/testenv"
)

// A service, and masquerading of what reaches one pod's port 8081.
const translations = `
table inet nat {
	chain prerouting {
		type nat hook prerouting priority dstnat;
		ip daddr 172.20.0.80 tcp dport 80 dnat ip to 198.51.100.7:8080
	}
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ip daddr 10.0.1.11 tcp dport 8081 masquerade
	}
}`

func load(t *testing.T, ns *testenv.NetNS, rules string) {
	t.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		testenv.Missing(t, "nft is not installed")
	}
	cmd := exec.Command(path, "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	ns.MustDo(t, cmd.Run)
}

func TestFlows(t *testing.T) {
	testenv.RequireRoot(t)
	g := testenv.Ground(t)
	p := g.Pod(t, testenv.PodA)
	own := map[netip.Addr]bool{p.Addr4: true, p.Addr6: true}
	flows := func() (got []enforce.Flow) {
		t.Helper()
		g.Node.MustDo(t, func() (err error) { got, err = Flows(own); return err })
		slices.SortFunc(got, func(a, b enforce.Flow) int { return a.Local.Compare(b.Local) })
		return got
	}
	if got := flows(); len(got) > 0 {
		t.Errorf("nothing is tracked: %v", got)
	}
	load(t, g.Node, translations)

	g.Ext.ListenTCP(t, "198.51.100.7:8080")
	p.ListenTCP(t, "10.0.1.11:8081")
	g.Ext.PacketConn(t, "[2001:db8:7::7]:53")
	dial := func(ns *testenv.NetNS, local, remote string) {
		t.Helper()
		c, err := ns.DialFrom("tcp", local, remote, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	dial(p.NetNS, "10.0.1.11:41000", "172.20.0.80:80")
	dial(g.Ext, "203.0.113.9:41001", "10.0.1.11:8081")
	p.ListenTCP(t, "10.0.1.11:8082")
	g.Node.ListenTCP(t, testenv.NodeAddr4+":10250")
	dial(g.Node, testenv.NodeAddr4+":41003", "10.0.1.11:8082") // the node's own, both
	dial(p.NetNS, "10.0.1.11:41004", testenv.NodeAddr4+":10250")
	query := p.PacketConn(t, "[fd00:10:1::11]:41002")
	if _, err := query.WriteTo([]byte("?"), netUDP("[2001:db8:7::7]:53")); err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort
	want := []enforce.Flow{
		{Local: at("10.0.1.11:8081"), Remote: at("10.0.0.10:41001"), Proto: 6, Dir: policy.Ingress, Answered: true},
		{Local: at("10.0.1.11:41000"), Remote: at("172.20.0.80:80"), Proto: 6, Dir: policy.Egress, Answered: true},
		{Local: at("[fd00:10:1::11]:41002"), Remote: at("[2001:db8:7::7]:53"), Proto: 17, Dir: policy.Egress},
	}
	testenv.Eventually(t, 2*time.Second, func() error {
		if diff := cmp.Diff(want, flows(), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
			return errDiff(diff)
		}
		return nil
	})
}

// What is cut off, or not of this world, is no entry.
func TestParseWhatIsNotWhole(t *testing.T) {
	for name, msg := range map[string][]byte{
		"nothing":              nil,
		"a header":             {2, 0, 0, 0},
		"too short a length":   {2, 0, 0, 0, 1, 0, 1, 0},
		"a length beyond all":  {2, 0, 0, 0, 255, 255, 1, 0},
		"an empty tuple":       {2, 0, 0, 0, 4, 0, 1, 0x80},
		"a short status":       {2, 0, 0, 0, 5, 0, 3, 0, 1},
		"unknown, and padding": {2, 0, 0, 0, 5, 0, 99, 0, 1, 0, 0},
	} {
		if e, ok := parse(msg); ok {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
