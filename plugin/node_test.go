package plugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/latch-cni/latch/plugin"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// TestMain makes the test binary the plugin when it is called by the plugin's name, so that the verbs run
// as the runtime runs them, each in a process of its own.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "latch" {
		skel.PluginMainFuncs(plugin.Funcs(), plugin.Versions(), "CNI plugin latch under test")
		return
	}
	testenv.Main(m)
}

// node is a host with the plugin and nothing else: its own netns, bpffs and state folder.
type node struct {
	t     testing.TB
	host  *testenv.NetNS
	bin   string // folder with the plugin
	bpffs string
	state string
	next  int
}

func newNode(t testing.TB) *node {
	t.Helper()
	testenv.RequireRoot(t)
	n := &node{t: t, bin: t.TempDir(), host: testenv.New(t), bpffs: testenv.BPFFS(t), state: testenv.StateDir(t)}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(n.state, 0o700), os.Symlink(self, filepath.Join(n.bin, "latch"))); err != nil {
		t.Fatal(err)
	}
	return n
}

// sandbox is what the runtime and the main plugin have made for a pod before latch is called.
type sandbox struct {
	netns     *testenv.NetNS
	container string
	name      string
	uid       string
	hostVeth  string
	addr      netip.Addr
}

// sandbox makes a pod's netns with eth0, as the VPC CNI would.
func (n *node) sandbox(name string) *sandbox {
	n.t.Helper()
	n.next++
	s := &sandbox{
		netns: testenv.New(n.t), container: fmt.Sprintf("c%d-%s", n.next, name), name: name,
		uid: fmt.Sprintf("uid-%d", n.next), hostVeth: fmt.Sprintf("eni%d", n.next),
		addr: netip.AddrFrom4([4]byte{10, 0, 1, byte(10 + n.next)}),
	}
	testenv.Veth(n.t, n.host, s.hostVeth, s.netns, "eth0")
	s.netns.Addr(n.t, "eth0", s.addr.String()+"/32")
	return s
}

// publish does what latchd does before ADD: it prepares the identifier and writes the pod's record.
func (n *node) publish(s *sandbox) identity.Identifier {
	n.t.Helper()
	labels := map[string]string{"app": s.name}
	id := identity.Of("shop", labels)
	n.prepare(id, labels)
	n.record(s, id, labels)
	return id
}

func (n *node) prepare(id identity.Identifier, labels map[string]string) {
	n.t.Helper()
	ctx := context.Background()
	e := n.open()
	defer e.Close()
	held, err := e.Lock(ctx, id)
	if err != nil {
		n.t.Fatal(err)
	}
	defer held.Release()
	rules := policy.Compile(policy.Input{Default: [2]policy.Verdict{policy.Allow, policy.Allow}})
	if _, err := e.Apply(ctx, held, enforce.Request{Identifier: id, Namespace: "shop", Labels: labels, Create: rules}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) record(s *sandbox, id identity.Identifier, labels map[string]string) {
	n.t.Helper()
	err := n.store().WritePod(state.PodRecord{
		Namespace: "shop", Name: s.name, UID: s.uid, Identifier: id, Labels: labels, PublishedAt: time.Now(),
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) open() *enforce.Enforcer {
	n.t.Helper()
	e, err := enforce.Open(context.Background(), enforce.Config{
		Bpffs: n.bpffs, StateDir: n.state, AttachMode: attach.ModeAuto, LockTimeout: 5 * time.Second,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return e
}

func (n *node) store() state.Store { return state.New(n.state) }

// netConf makes a plugin entry as the runtime hands it to the plugin.
func (n *node) netConf(cniVersion string, s *sandbox, keys map[string]any) map[string]any {
	conf := map[string]any{
		"cniVersion": cniVersion, "name": "pods", "type": "latch", "policyWait": "100ms",
		"stateDir": n.state, "bpffs": n.bpffs, "logFile": filepath.Join(n.state, "latch.log"),
	}
	if s != nil {
		conf["prevResult"] = s.result(cniVersion)
	}
	maps.Copy(conf, keys)
	return conf
}

// result is what the VPC CNI gives, its pseudo interface included.
func (s *sandbox) result(cniVersion string) map[string]any {
	ip := map[string]any{"interface": 1, "address": s.addr.String() + "/32"}
	if !strings.HasPrefix(cniVersion, "1.") {
		ip["version"] = "4"
	}
	return map[string]any{
		"cniVersion": cniVersion,
		"interfaces": []any{
			map[string]any{"name": s.hostVeth},
			map[string]any{"name": "eth0", "mac": "254", "sandbox": s.netns.Path()},
			map[string]any{"name": "dummy" + s.hostVeth, "mac": "0", "sandbox": "0"},
		},
		"ips":            []any{ip},
		"dns":            map[string]any{},
		"x-other-plugin": "kept",
	}
}

// env is what the runtime sets. An empty value is left out.
func (n *node) env(s *sandbox, override map[string]string) map[string]string {
	env := map[string]string{"CNI_PATH": n.bin, "CNI_IFNAME": "eth0"}
	if s != nil {
		env["CNI_CONTAINERID"] = s.container
		env["CNI_NETNS"] = s.netns.Path()
		env["CNI_ARGS"] = "IgnoreUnknown=1;K8S_POD_UID=" + s.uid + ";K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + s.name
	}
	maps.Copy(env, override)
	return env
}

// call runs the plugin on the host. The CNI error is the one on stdout, nil if it exits with 0.
func (n *node) call(verb string, env map[string]string, conf map[string]any) (stdout string, cniErr *types.Error) {
	n.t.Helper()
	stdout, cniErr, err := n.exec(verb, env, conf)
	if err != nil {
		n.t.Fatal(err)
	}
	return stdout, cniErr
}

// exec is call for other goroutines than the test's.
func (n *node) exec(verb string, env map[string]string, conf map[string]any) (stdout string, cniErr *types.Error, err error) {
	stdin, err := json.Marshal(conf)
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(filepath.Join(n.bin, "latch"))
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb)
	for key, value := range env {
		if value != "" {
			cmd.Env = append(cmd.Env, key+"="+value)
		}
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = n.host.Do(cmd.Run)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out.String(), nil, nil
	case !errors.As(err, &exit):
		return "", nil, fmt.Errorf("run %s: %w", verb, err)
	}
	cniErr = &types.Error{}
	if jsonErr := json.Unmarshal(out.Bytes(), cniErr); jsonErr != nil || cniErr.Code == 0 || cniErr.Msg == "" {
		return "", nil, fmt.Errorf("%s failed (%w) without a CNI error on stdout: %q, stderr %q", verb, err, out.String(), errOut.String())
	}
	return out.String(), cniErr, nil
}

func (n *node) mustCall(verb string, s *sandbox, conf map[string]any) string {
	n.t.Helper()
	stdout, cniErr := n.call(verb, n.env(s, nil), conf)
	if cniErr != nil {
		n.t.Fatalf("%s: %v", verb, cniErr)
	}
	return stdout
}

// wantRefused requires the code, the texts, and that nothing was left behind for the sandbox.
func (n *node) wantRefused(s *sandbox, cniErr *types.Error, code uint, parts ...string) {
	n.t.Helper()
	if cniErr == nil {
		n.t.Fatal("success, want a refusal")
	}
	if cniErr.Code != code {
		n.t.Errorf("error %q has code %d, want %d", cniErr, cniErr.Code, code)
	}
	for _, part := range parts {
		if !strings.Contains(cniErr.Error(), part) {
			n.t.Errorf("error %q does not say %q", cniErr, part)
		}
	}
	n.wantNoAttachments()
}

// wantTold finds the plugin's word of a failed ADD, as latchd does.
func (n *node) wantTold(s *sandbox, code uint, part string) {
	n.t.Helper()
	failures, err := n.store().ListFailures()
	if err != nil || len(failures) != 1 {
		n.t.Fatalf("told of %v, %v, want of one failure", failures, err)
	}
	if f := failures[0]; f.PodName != s.name || f.Code != code || !strings.Contains(f.Message, part) || f.PodUID != s.uid || time.Since(f.At) > time.Minute {
		n.t.Errorf("told of %+v, want of pod %s with code %d and %q", f, s.name, code, part)
	}
}

func (n *node) wantNoAttachments() {
	n.t.Helper()
	left, err := n.store().ListAttachments()
	if err != nil || len(left) != 0 {
		n.t.Errorf("attachments left: %v, %v", left, err)
	}
}
