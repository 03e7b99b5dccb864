package regress

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/shared/testenv"
)

// other6 is the outside's second IPv6 address, beside 203.0.113.9.
const other6 = "2001:db8:9::9"

// inForce bounds the time from a change of policy until its verdicts.
const inForce = 2 * time.Second

// ground is the node of one test, with latch and latchd.
type ground struct {
	*testenv.GroundT0
	t    *testing.T
	node *harness.Node
	bin  *harness.Binaries

	ends  map[string]*end // that packets can leave from and arrive at, by name
	names map[string][]netip.Addr
	mark  atomic.Uint32 // of the last packet

	mu    sync.Mutex
	added map[string]*pod // by container id
	files map[string]bool // manifests
	next  int

	forbidden []sighting   // packets that must never arrive
	knocking  atomic.Int32 // senders of packets that are dropped
}

type options struct {
	strict bool
	latchd []string       // more flags
	entry  map[string]any // more keys of the plugin's entry
	bin    *harness.Binaries
	idle   bool // do not start latchd
}

func newGround(t *testing.T, o options) *ground {
	t.Helper()
	testenv.RequireRoot(t)
	g := &ground{GroundT0: testenv.Ground(t), t: t, bin: o.bin, ends: map[string]*end{}, names: map[string][]netip.Addr{},
		added: map[string]*pod{}, files: map[string]bool{}}
	if g.bin == nil {
		g.bin = binaries()
	}
	g.Ext.Addr(t, "eth0", other6+"/128")
	mode := "standard"
	if o.strict {
		mode = "strict"
	}
	var err error
	g.node, err = harness.NewNode(harness.Config{
		NetNS: g.Node.Path(), Addrs: addrs(testenv.NodeAddr4, testenv.NodeAddr6), Binaries: g.bin, EnforcingMode: mode,
		LatchdArgs: append([]string{"--grace", "1s"}, o.latchd...), LatchEntry: o.entry,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.close() })
	g.outside()
	if !o.idle {
		g.startLatchd()
	}
	return g
}

func addrs(s ...string) (out []netip.Addr) {
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// outside names what lies outside of the node.
func (g *ground) outside() {
	e := g.newEnd("ext", g.Ext, "eth0", g.Node.Link(g.t, "eth0").Attrs().HardwareAddr)
	for name, a := range map[string][]netip.Addr{
		"web":   addrs(testenv.ExtWeb4, testenv.ExtWeb6),
		"other": addrs(testenv.ExtOther4, other6),
		"imds":  addrs(testenv.ExtIMDS4),
	} {
		g.ends[name], g.names[name] = e, a
	}
	g.names["node"] = addrs(testenv.NodeAddr4, testenv.NodeAddr6)
	for name, spec := range map[string]testenv.PodSpec{"A": testenv.PodA, "B": testenv.PodB, "C": testenv.PodC, "D": testenv.PodD} {
		g.names[name] = addrs(spec.Addr4, spec.Addr6) // policies name pods before there are any
	}
}

func (g *ground) startLatchd() {
	g.t.Helper()
	if err := g.node.StartLatchd(); err != nil {
		g.t.Fatal(err)
	}
	if err := g.node.WaitReady(context.Background(), 20*time.Second); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) killLatchd() {
	g.t.Helper()
	if err := g.node.KillLatchd(); err != nil {
		g.t.Fatal(err)
	}
}

// close ends the ground. Of a test that has not failed nothing may be left.
func (g *ground) close() {
	if g.t.Failed() {
		g.explain()
		for _, p := range g.added {
			_, _ = p.tryDel()
		}
	} else {
		g.finish()
	}
	if err := g.node.Stop(context.Background()); err != nil {
		g.t.Errorf("%v", err)
	}
}

// explain prints what there is to know about a failure.
func (g *ground) explain() {
	out, err := g.node.Latchctl(context.Background(), "status")
	g.t.Logf("latchctl status: %v\n%s", err, out)
	out, err = g.node.Latchctl(context.Background(), "counters")
	g.t.Logf("latchctl counters: %v\n%s", err, out)
	if g.node.Latchd != nil {
		g.t.Logf("latchd: %v\n%s", g.node.Latchd.Running(), g.node.Latchd.LogTail(30))
	}
	logs, _ := filepath.Glob(filepath.Join(g.node.PolicyDir, "*"))
	g.t.Logf("manifests: %v", logs)
}

// write puts a manifest into the policy directory, whole.
func (g *ground) write(name string, content []byte) {
	g.t.Helper()
	if err := g.put(name, content); err != nil {
		g.t.Fatal(err)
	}
}

// put is write for other goroutines than the test's.
func (g *ground) put(name string, content []byte) error {
	g.mu.Lock()
	g.files[name] = true
	g.mu.Unlock()
	return g.node.WriteManifest(name, content)
}

func (g *ground) remove(names ...string) {
	g.t.Helper()
	for _, name := range names {
		g.mu.Lock()
		delete(g.files, name)
		g.mu.Unlock()
		if err := g.node.RemoveManifest(name); err != nil {
			g.t.Fatal(err)
		}
	}
}

// apply writes policies, one file each.
func (g *ground) apply(policies ...string) {
	g.t.Helper()
	for _, p := range policies {
		pe := g.policy(p)
		g.write(pe.file(), pe.manifest())
	}
}

// withdraw deletes policies that apply wrote, by namespace/name.
func (g *ground) withdraw(policies ...string) {
	g.t.Helper()
	for _, p := range policies {
		g.remove(policyFile(p))
	}
}

// eventually polls until check returns nil, at most so long.
func (g *ground) eventually(patience time.Duration, check func() error) {
	g.t.Helper()
	testenv.Eventually(g.t, patience, check)
}

// addresses resolves a name, or an address, in the families that it has.
func (g *ground) addresses(name string) []netip.Addr {
	if a, ok := g.names[name]; ok {
		return a
	}
	a, err := netip.ParseAddr(name)
	if err != nil {
		panic(fmt.Sprintf("regress: %q is neither a name of the ground nor an address", name))
	}
	return []netip.Addr{a}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
