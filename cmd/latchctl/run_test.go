package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// node is a node with one pod, A, that takes TCP 8080 from anywhere and nothing else.
type node struct {
	*testenv.GroundT0
	t   *testing.T
	pod *testenv.Pod
	cfg enforce.Config
}

func newNode(t *testing.T) *node {
	t.Helper()
	testenv.RequireRoot(t)
	n := &node{GroundT0: testenv.Ground(t), t: t}
	n.pod = n.Pod(t, testenv.PodA)
	n.cfg = enforce.Config{Bpffs: testenv.BPFFS(t), StateDir: testenv.StateDir(t), AttachMode: attach.ModeAuto,
		LockTimeout: 5 * time.Second, Sizes: bpf.Sizes{Flows4: 1024, Flows6: 1024, Frags: 64}}
	n.do(n.enforce)
	return n
}

func (n *node) do(f func() error) {
	n.t.Helper()
	if err := n.Node.Do(f); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) enforce() error {
	ctx := context.Background()
	e, err := enforce.Open(ctx, n.cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	spec := n.pod.Spec
	id := identity.Of(spec.Namespace, spec.Labels)
	ref := policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "t1", Name: "web"}
	rules := policy.Compile(policy.Input{
		Default: [2]policy.Verdict{policy.Allow, policy.Allow},
		Policies: []policy.Policy{{Ref: ref, Isolates: [2]bool{policy.Ingress: true}, Rules: [2][]policy.Rule{policy.Ingress: {
			{Peer: policy.Peer{Block: netip.MustParsePrefix("0.0.0.0/0")}, Ports: []policy.Ports{{Protocol: policy.TCP, First: 8080, Last: 8080}}}}}}},
	})
	held, err := e.Lock(ctx, id)
	if err != nil {
		return err
	}
	_, err = e.Apply(ctx, held, enforce.Request{Identifier: id, Namespace: spec.Namespace, Labels: spec.Labels, Create: rules,
		Policies: []policy.PolicyRef{ref}, Bind: []state.Attachment{{ContainerID: "c1", IfName: "eth0", PodNamespace: spec.Namespace, PodName: spec.Name,
			Interfaces: []state.Interface{{Ifindex: n.pod.HostIfindex, Name: n.pod.HostName, Addr4: n.pod.Addr4, Addr6: n.pod.Addr6}}}}})
	return errors.Join(err, held.Release(),
		e.Store().WritePod(state.PodRecord{Namespace: spec.Namespace, Name: spec.Name, Identifier: id}),
		e.Store().WriteSettings(state.NodeSettings{EnforcingMode: "standard", Bpffs: n.cfg.Bpffs}))
}

// run runs a command on the node, without --bpffs: latchctl finds it in the recorded settings.
func (n *node) run(args ...string) (code int, out, errOut string) {
	n.t.Helper()
	n.do(func() error {
		code, out, errOut = call(append(args, "--state-dir", n.cfg.StateDir)...)
		return nil
	})
	return code, out, errOut
}

func call(args ...string) (int, string, string) {
	var out, errOut bytes.Buffer
	code := run(args, strings.NewReader(""), &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown command":        {"frobnicate"},
		"unknown flag":           {"status", "--frobnicate"},
		"unknown output":         {"status", "-o", "xml"},
		"a pod without a name":   {"status", "shop"},
		"too many arguments":     {"status", "shop/db", "shop/web"},
		"no pod":                 {"rules"},
		"explain without ends":   {"explain", "--port", "80"},
		"explain of a bad port":  {"explain", "--from", "shop/a", "--to", "shop/b", "--port", "http"},
		"explain of no family":   {"explain", "--from", "shop/a", "--to", "shop/b", "--port", "80", "--family", "5"},
		"explain of half a name": {"explain", "--from", "shop/a", "--to", "b", "--port", "80"},
		"unknown word of ebpf":   {"ebpf", "frobnicate"},
		"dump of no map":         {"ebpf", "dump-maps"},
		"events of no pod":       {"events", "shop"},
		"events of no direction": {"events", "--direction", "up"},
		"an argument of cleanup": {"cleanup", "everything"},
	} {
		dirs := []string{"--bpffs", t.TempDir(), "--state-dir", t.TempDir()}
		if code, out, errOut := call(append(args, dirs...)...); code != exitUsage || out != "" || errOut == "" {
			t.Errorf("%s: exit code %d, output %q, error %q", name, code, out, errOut)
		}
	}
}

func TestMistypedCommand(t *testing.T) {
	for want, args := range map[string][]string{`unknown command "statsu"; did you mean "status"?`: {"statsu"}, `"ebpf map"; did you mean "maps"?`: {"ebpf", "map"}} {
		if code, _, errOut := call(args...); code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit code %d, no %q in %s", args, code, want, errOut)
		}
	}
}

func TestEveryCommandHelps(t *testing.T) {
	for _, c := range (&app{}).root().Commands() {
		if c.Long == "" && c.Name() != "help" && c.Name() != "completion" || !c.HasParent() {
			t.Errorf("%s has no help", c.Name())
		}
		if c.Example == "" {
			t.Errorf("%s has no example", c.Name())
		}
	}
}

func TestCommandsOnANode(t *testing.T) {
	n := newNode(t)
	pod := testenv.PodA.Namespace + "/" + testenv.PodA.Name
	tests := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"status", []string{"status"}, 0, []string{fmt.Sprintf("2 programs and %d maps pinned", len(bpf.MapNames())), pod, "enforced", "isolated", "open", "t1/web"}},
		{"status of a pod", []string{"status", pod}, 0, []string{n.pod.HostName, "first in line", "bound to slot"}},
		{"status of nobody", []string{"status", "t1/nobody"}, exitUnhealthy, nil},
		{"rules", []string{"rules", pod}, 0, []string{"0.0.0.0/0", "TCP/8080", "t1/web"}},
		{"explain what is allowed", []string{"explain", "--from", "198.51.100.7", "--to", pod, "--port", "8080"}, 0, []string{"allowed", "t1/web", "considered too", "any other", "warning: latchd has not spoken"}},
		{"explain what is denied", []string{"explain", "--from", "198.51.100.7", "--to", pod, "--port", "80"}, exitDenied, []string{"denied", "t1/web (isolates)"}},
		{"explain what is elsewhere", []string{"explain", "--from", "198.51.100.7", "--to", "203.0.113.9", "--port", "80"}, exitUnhealthy, []string{"unknown"}},
		{"flows", []string{"flows"}, 0, []string{"no live flows"}},
		{"counters", []string{"counters", pod}, 0, []string{"REASON"}},
		{"check", []string{"check"}, 0, []string{"1 attachment, 1 interface and 1 rule set checked: all in force"}},
		{"doctor", []string{"doctor", "--cni-conf-dir", "/nonexistent"}, exitUnhealthy, []string{"all 1 in force", "-> name the runtime's folder", "slots"}},
		{"cleanup that only says", []string{"cleanup", "--dry-run"}, 0, []string{pod, "v1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, out, errOut := n.run(test.args...)
			if code != test.code {
				t.Errorf("exit code %d, want %d; %s", code, test.code, errOut)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in:\n%s", want, out)
				}
			}
			for _, format := range []string{"json", "yaml"} {
				wantParses(t, n, format, append(test.args, "-o", format))
			}
		})
	}
}

func wantParses(t *testing.T, n *node, format string, args []string) {
	t.Helper()
	_, out, errOut := n.run(args...)
	if out == "" && errOut != "" {
		return
	}
	var v map[string]any
	var err error
	if format == "json" {
		err = json.Unmarshal([]byte(out), &v)
	} else {
		err = yaml.Unmarshal([]byte(out), &v)
	}
	if err != nil || len(v) == 0 {
		t.Errorf("%s: %v in:\n%s", format, err, out)
	}
}

// Running pods that wait for the rest of a policy are told apart from those that do not.
func TestSettlingPolicyShows(t *testing.T) {
	n := newNode(t)
	store := state.New(n.cfg.StateDir)
	rec, err := store.ReadIdentifier(identity.Of(n.pod.Spec.Namespace, n.pod.Spec.Labels))
	if err != nil {
		t.Fatal(err)
	}
	for _, settling := range [][]policy.PolicyRef{nil, rec.Policies} {
		rec.Settling = settling
		if err := store.WriteIdentifier(rec); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"status"}, {"status", "t1/" + n.pod.Spec.Name}, {"status", "-o", "json"}} {
			if code, out, _ := n.run(args...); code != 0 || strings.Contains(out, "settling") != (settling != nil) {
				t.Errorf("settling %v, %v: exit code %d\n%s", settling, args, code, out)
			}
		}
	}
}

func TestWhatIsNotInForceShows(t *testing.T) {
	n := newNode(t)
	n.do(func() error { return attach.Detach(n.pod.HostIfindex, attach.FromPod, "") })
	for _, args := range [][]string{{"status"}, {"check"}} {
		code, out, _ := n.run(args...)
		if code != exitUnhealthy || !strings.Contains(out, "from_pod: no program of ours runs") {
			t.Errorf("%v: exit code %d, output:\n%s", args, code, out)
		}
	}
}

// What the kernel does is shown though what latchd says cannot be read.
func TestStatusWithoutAWordOfLatchd(t *testing.T) {
	n := newNode(t)
	if err := os.WriteFile(filepath.Join(n.cfg.StateDir, "status.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := n.run("status")
	if code != exitError || !strings.Contains(out, "enforced") || !strings.Contains(errOut, "status.json") {
		t.Errorf("exit code %d, output:\n%s%s", code, out, errOut)
	}
}

// A script that asks a node without Latch must not be told that all is well.
func TestCheckWithoutLatch(t *testing.T) {
	for _, output := range []string{"table", "json"} {
		code, out, errOut := call("check", "-o", output, "--bpffs", t.TempDir(), "--state-dir", t.TempDir())
		if code != exitUnhealthy || !strings.Contains(out, "Latch does not run on this node") {
			t.Errorf("%s: exit code %d, %s%s", output, code, out, errOut)
		}
	}
}

func TestCleanupLeavesNothing(t *testing.T) {
	tests := []struct {
		name   string
		before func(n *node) error
	}{
		{"a whole node", func(*node) error { return nil }},
		{"with what a policy directory said", func(n *node) error {
			return state.New(n.cfg.StateDir).Manifests("/etc/latch").Write("a.yaml", []byte("x"))
		}},
		{"pins are lost", func(n *node) error { return os.RemoveAll(filepath.Join(n.cfg.Bpffs, "latch")) }},
		{"records are lost", func(n *node) error { return os.RemoveAll(filepath.Join(n.cfg.StateDir, "attachments")) }},
		{"tcx", func(n *node) error {
			n.cfg.AttachMode = attach.ModeTCX
			return n.enforce()
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t)
			n.do(func() error { return test.before(n) })
			for round := range 2 {
				if code, _, errOut := n.run("cleanup", "--bpffs", n.cfg.Bpffs); code != 0 {
					t.Fatalf("round %d: exit code %d, %s", round, code, errOut)
				}
				n.wantNothing()
			}
		})
	}
}

func (n *node) wantNothing() {
	n.t.Helper()
	for _, dir := range []string{filepath.Join(n.cfg.Bpffs, "latch"), n.cfg.StateDir} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			left, _ := filepath.Glob(dir + "/*")
			n.t.Errorf("%s is left: %v, %v", dir, err, left)
		}
	}
	n.do(func() error {
		for _, side := range attach.Sides {
			if on, err := attach.Occupied(n.pod.HostIfindex, side); err != nil || len(on) > 0 {
				n.t.Errorf("%s: %v is left, %v", side, on, err)
			}
		}
		return nil
	})
}
