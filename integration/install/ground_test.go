package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/ready"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// Ports to which pods send. Nothing allows the first one in strict mode.
const (
	port        = "9000"
	allowedPort = "9001"
)

// ground is a node with a primary CNI and without Latch, and its outside, which notes whose datagrams
// arrive.
type ground struct {
	*testenv.GroundT0
	criRuntime
	t    *testing.T
	node *harness.Node
	bin  *harness.Binaries

	mu      sync.Mutex
	arrived map[string]int // by what the datagrams say
}

// options of a node's latchd.
type options struct {
	latchd []string          // more flags
	bin    *harness.Binaries // instead of those that are built
}

func newGround(t *testing.T, o options) *ground {
	t.Helper()
	testenv.RequireRoot(t)
	g := &ground{GroundT0: testenv.Ground(t), t: t, arrived: map[string]int{}}
	var err error
	if g.bin = o.bin; g.bin == nil {
		g.bin = ready.Build(t)
	}
	dir := t.TempDir()
	g.criRuntime = criRuntime{node: g.Node, confDir: filepath.Join(dir, "net.d"), binDir: filepath.Join(dir, "bin"), cacheDir: filepath.Join(dir, "cache")}
	g.check(errors.Join(os.Mkdir(g.confDir, 0o755), os.Mkdir(g.binDir, 0o755), os.Mkdir(g.cacheDir, 0o755)))
	self, err := os.Executable()
	g.check(err)
	for _, name := range []string{"ptp", "host-local", "bandwidth"} {
		g.check(os.Symlink(filepath.Join(g.bin.Dir, name), filepath.Join(g.binDir, name)))
	}
	for name := range plugins {
		g.check(os.Symlink(self, filepath.Join(g.binDir, name)))
	}
	g.node, err = harness.NewNode(harness.Config{
		NetNS: g.Node.Path(), Binaries: g.bin, EnforcingMode: "strict",
		Addrs: []netip.Addr{netip.MustParseAddr(testenv.NodeAddr4), netip.MustParseAddr(testenv.NodeAddr6)},
		LatchdArgs: append([]string{"--cni-conf-dir", g.confDir, "--policy-wait", "20ms", "--health-addr", "", "--metrics-addr", "",
			"--plugin-log-file", filepath.Join(dir, "latch.log")}, o.latchd...),
	})
	g.check(err)
	t.Cleanup(func() { g.check(g.node.Stop(context.Background())) })
	t.Cleanup(g.logs)
	g.listen(g.Ext, testenv.ExtWeb4+":"+port)
	g.listen(g.Ext, testenv.ExtWeb4+":"+allowedPort)
	return g
}

// ownFolders tells the plugin the node's bpffs and log, until latchd does: it would take the machine's.
func (g *ground) ownFolders() {
	g.t.Helper()
	g.check(state.New(g.node.StateDir).WriteSettings(state.NodeSettings{Bpffs: g.node.Bpffs, LogFile: g.node.LatchLog}))
}

func (g *ground) check(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// logs shows the end of latchd's log of a test that failed.
func (g *ground) logs() {
	if g.t.Failed() {
		b, _ := os.ReadFile(filepath.Join(g.node.Dir, "latchd.log"))
		lines := strings.Split(string(b), "\n")
		g.t.Logf("latchd: %s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
}

// start starts latchd, and waits until it is ready.
func (g *ground) start() {
	g.t.Helper()
	g.check(g.node.StartLatchd())
	g.check(g.node.WaitReady(g.t.Context(), 20*time.Second))
}

// latchd runs one of latchd's other commands to its end.
func (g *ground) latchd(command string, args ...string) (string, error) {
	return g.latchdAs("", command, args...)
}

// latchdAs is latchd by the binary of another name beside it.
func (g *ground) latchdAs(name, command string, args ...string) (string, error) {
	path := g.bin.Latchd()
	if name != "" {
		path += "-" + name
	}
	args = append([]string{command, "--cni-conf-dir", g.confDir, "--cni-bin-dir", g.binDir, "--bpffs", g.node.Bpffs, "--state-dir", g.node.StateDir}, args...)
	var out []byte
	err := g.Node.Do(func() (err error) {
		out, err = exec.Command(path, args...).CombinedOutput()
		return err
	})
	if err != nil {
		err = fmt.Errorf("latchd %s: %w: %s", command, err, out)
	}
	return string(out), err
}

func (g *ground) install(args ...string) {
	g.t.Helper()
	_, err := g.latchd("install", append([]string{"--plugin", g.bin.Latch()}, args...)...)
	g.check(err)
}

// primary is the primary CNI's configuration with plugins behind its own.
func (g *ground) primary(more ...string) string {
	ptp := fmt.Sprintf(`{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.0.1.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`,
		filepath.Join(g.cacheDir, "ipam"))
	return fmt.Sprintf("{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"pods\",\n  \"disableCheck\": true,\n  \"plugins\": [\n    %s\n  ]\n}\n",
		strings.Join(append([]string{ptp}, more...), ",\n    "))
}

const primaryName = "10-aws.conflist"

func (g *ground) writePrimary(content string) {
	g.t.Helper()
	tmp := g.criRuntime.conflist(primaryName) + ".tmp"
	g.check(os.WriteFile(tmp, []byte(content), 0o644))
	g.check(os.Rename(tmp, g.criRuntime.conflist(primaryName)))
}

func (g *ground) read(name string) string {
	g.t.Helper()
	b, err := os.ReadFile(g.criRuntime.conflist(name))
	g.check(err)
	return string(b)
}

// greeting is what listen answers.
const greeting = "hello"

// listen notes what arrives.
func (g *ground) listen(ns *testenv.NetNS, addr string) {
	c := ns.PacketConn(g.t, addr)
	go func() {
		for b := make([]byte, 256); ; {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if string(b[:n]) == greeting {
				_, _ = c.WriteTo(b[:n], from)
				continue
			}
			g.mu.Lock()
			g.arrived[string(b[:n])]++
			g.mu.Unlock()
		}
	}()
}

func (g *ground) arrivals(what string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.arrived[what]
}

// send sends datagrams from a pod to the outside.
func (g *ground) send(s *sandbox, what string) {
	g.t.Helper()
	c, err := s.Dial("udp", testenv.ExtWeb4+":"+port, time.Second)
	g.check(err)
	defer c.Close()
	for range 3 {
		_, err := c.Write([]byte(what))
		g.check(err)
	}
}

// wantOpen requires that a pod reaches the outside: that what is sent would arrive if nothing were in
// the way.
func (g *ground) wantOpen(s *sandbox, what string) {
	g.t.Helper()
	testenv.Eventually(g.t, 5*time.Second, func() error {
		g.send(s, what)
		if g.arrivals(what) == 0 {
			return fmt.Errorf("%s: nothing arrived", what)
		}
		return nil
	})
}

// wantShut requires that none of the datagrams arrived, after one that was sent later did.
func (g *ground) wantShut(open *sandbox, what ...string) {
	g.t.Helper()
	g.wantOpen(open, fmt.Sprintf("later than %s", what[len(what)-1]))
	for _, w := range what {
		if n := g.arrivals(w); n > 0 {
			g.t.Errorf("%s: %d datagrams arrived", w, n)
		}
	}
}

// openPod is a pod that the primary CNI connects, without Latch.
func (g *ground) openPod(name string) *sandbox {
	g.t.Helper()
	bare := g.criRuntime
	bare.confDir = g.t.TempDir()
	g.check(os.WriteFile(bare.conflist(primaryName), []byte(g.primary()), 0o644))
	s := newSandbox(g.t, name)
	g.check(bare.add(s))
	g.t.Cleanup(func() { g.check(bare.del(s)) })
	return s
}

// latchAlone is a chain of which the plugins before latch have run.
func (g *ground) latchAlone(prevResult *current.Result) *libcni.NetworkConfigList {
	g.t.Helper()
	raw, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "pods", "plugins": []any{
		map[string]any{"type": "latch", "stateDir": g.node.StateDir, "prevResult": prevResult}}})
	g.check(err)
	list, err := libcni.NetworkConfFromBytes(raw)
	g.check(err)
	return list
}

// pod is one that the runtime connects by what it finds.
func (g *ground) pod(name string) *sandbox {
	g.t.Helper()
	s := newSandbox(g.t, name)
	g.check(g.add(s))
	g.t.Cleanup(func() { g.check(g.del(s)) })
	return s
}
