package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// documented is a command of a console block.
type documented struct {
	line string
	exit int
}

var consoleBlock = regexp.MustCompile("(?ms)^```console(?: exit=(\\d+))?\n(.*?)^```$")

func commandsOf(t *testing.T, file string) (all []documented) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range consoleBlock.FindAllStringSubmatch(string(raw), -1) {
		exit, _ := strconv.Atoi(block[1])
		for line := range strings.Lines(block[2]) {
			if command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ "); ok {
				all = append(all, documented{command, exit})
			}
		}
	}
	return all
}

// operator is somebody at a shell of the node, whose file system begins at root.
type operator struct {
	*node
	root string
	busy []*exec.Cmd // in the background
}

var machinePath = regexp.MustCompile(`(^|[\s=])/(etc|var|run|opt|sys)/`)

const manifests = `apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: v1
kind: Pod
metadata: {name: %[2]s, namespace: %[1]s, labels: {%[3]s}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: %[1]s}
spec:
  podSelector: {}
  policyTypes: [Ingress]
  ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: 8080}]}]
---
apiVersion: networking.k8s.aws/v1alpha1
kind: PolicyEndpoint
metadata: {name: web-1, namespace: %[1]s}
spec:
  policyRef: {name: web, namespace: %[1]s}
  podSelector: {}
  podIsolation: [Ingress]
  podSelectorEndpoints: []
  ingress: [{cidr: 0.0.0.0/0, ports: [{protocol: TCP, port: 8080}]}]
`

func newOperator(t *testing.T) *operator {
	t.Helper()
	n := newNode(t)
	o := &operator{node: n, root: t.TempDir()}
	bin := filepath.Join(o.root, "bin")
	for _, name := range []string{"latch", "latchd", "latchctl"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "real", name), "../"+name).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", name, err, out)
		}
	}
	var labels []string
	for k, v := range testenv.PodA.Labels {
		labels = append(labels, fmt.Sprintf("%s: %q", k, v))
	}
	dirs := fmt.Sprintf("--bpffs %s --state-dir %s", n.cfg.Bpffs, n.cfg.StateDir)
	o.file("bin/latchctl", fmt.Sprintf("#!/bin/bash\nbin=(); case $1 in doctor) bin=(--cni-bin-dir %[3]s/opt/cni/bin --cni-conf-dir %[3]s/etc/cni/net.d);; esac\n"+
		"exec %[1]s/real/latchctl \"$@\" %[2]s \"${bin[@]}\"\n", bin, dirs, o.root))
	o.file("bin/latchd", fmt.Sprintf("#!/bin/bash\nplace=(--node-name n1 --plugin-log-file %[3]s/var/log/latch/latch.log); case $1 in install|uninstall) "+
		"place=(--cni-bin-dir %[3]s/opt/cni/bin --cni-conf-dir %[3]s/etc/cni/net.d);; esac\nexec %[1]s/real/latchd \"$@\" %[2]s \"${place[@]}\"\n", bin, dirs, o.root))
	o.file("etc/latch/policies/all.yaml", fmt.Sprintf(manifests, testenv.PodA.Namespace, testenv.PodA.Name, strings.Join(labels, ", ")))
	o.file("etc/cni/net.d/10-ptp.conflist", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"}]}`)
	o.file("opt/cni/bin/ptp", "")
	o.file("var/log/latch/flows.log", "")
	t.Cleanup(o.stop)
	return o
}

func (o *operator) file(name, content string) {
	o.t.Helper()
	path := filepath.Join(o.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		o.t.Fatal(err)
	}
}

// types runs a command line of the document, in the network namespace of the node.
func (o *operator) types(line string) (code int, output string) {
	o.t.Helper()
	line = machinePath.ReplaceAllString(line, "${1}"+o.root+"/$2/")
	line = strings.ReplaceAll(line, "shop/db", testenv.PodA.Namespace+"/"+testenv.PodA.Name)
	line, background := strings.CutSuffix(line, "&")
	c := exec.Command("bash", "-o", "pipefail", "-c", "exec 2>&1; "+line)
	c.Env = append(os.Environ(), "PATH="+filepath.Join(o.root, "bin")+":"+os.Getenv("PATH"))
	if background {
		c.Args[len(c.Args)-1] = "exec " + line
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		o.do(c.Start)
		o.busy = append(o.busy, c)
		return 0, ""
	}
	o.do(func() error {
		out, err := c.CombinedOutput()
		output = string(out)
		if c.ProcessState == nil {
			return err
		}
		return nil
	})
	return c.ProcessState.ExitCode(), output
}

// stop ends what runs in the background.
func (o *operator) stop() {
	for _, c := range o.busy {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait() // it says what it was ended by
	}
	o.busy = nil
}

// knock has a packet for the pod denied, and waits until that is in the flow log.
func (o *operator) knock() {
	o.t.Helper()
	if _, err := o.Ext.Dial("tcp4", o.pod.Addr4.String()+":5432", 100*time.Millisecond); err == nil {
		o.t.Fatal("a port that is not allowed answers")
	}
	testenv.Eventually(o.t, 5*time.Second, func() error {
		raw, err := os.ReadFile(filepath.Join(o.root, "var/log/latch/flows.log"))
		if err == nil && !strings.Contains(string(raw), `"dstPort":5432`) {
			err = fmt.Errorf("flow log: %s", raw)
		}
		return err
	})
}

// What commands have to show of what was denied.
var shown = map[string]string{
	"latchctl top --once":              " -> 10.0.1.11:5432/TCP",
	"latchctl events --last 20":        " -> 10.0.1.11:5432",
	"latchctl counters shop/db":        "deny",
	"curl -fsS http://127.0.0.1:8164/": "<td>10.0.1.11:5432</td>",
	"latchctl rules shop/db":           "TCP/8080",
	"latchctl status":                  "latchd  ready",
}

// Every command of the operations guide does what it says, in its order, on a node with one pod.
func TestOperationsGuide(t *testing.T) {
	o := newOperator(t)
	commands := commandsOf(t, "../../docs/operations.md")
	if len(commands) < 20 {
		t.Fatalf("found %d commands", len(commands))
	}
	for _, c := range commands {
		if strings.HasPrefix(c.line, "latchd uninstall") {
			o.stop()
		}
		began := time.Now()
		code, out := o.types(c.line)
		if code != c.exit || !strings.Contains(out, shown[c.line]) {
			t.Errorf("$ %s\nexit code %d, want %d, and %q\n%s", c.line, code, c.exit, shown[c.line], out)
		}
		t.Logf("$ %s (%v)\n%s", c.line, time.Since(began).Round(time.Millisecond), out)
		if len(o.busy) > 0 && strings.HasSuffix(c.line, "&") {
			testenv.Eventually(t, 15*time.Second, func() error {
				if code, out := o.types("latchctl status | grep -q 'latchd  ready'"); code != 0 {
					return fmt.Errorf("not ready: %s", out)
				}
				return nil
			})
			o.knock()
		}
	}
}

// What Linux has pushed out of the tables that pods share is told, and of no others.
func TestDoctorTellsOfFullTables(t *testing.T) {
	n := newNode(t)
	m, err := pins.LoadMap(pins.New(n.cfg.Bpffs).Map("table_ends"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for table, pushed := range map[bpf.Table]uint64{bpf.TableFlows4: 17, bpf.TableSpill4: 4711, bpf.TableFragSpill: 4712} {
		if err := m.Put(uint32(table), &bpf.TableEnd{Pushed: pushed}); err != nil {
			t.Fatal(err)
		}
	}
	_, out, _ := n.run("doctor", "--cni-conf-dir", "/nonexistent")
	if !strings.Contains(out, "17 entries were pushed out of flows4") || strings.Contains(out, "471") || strings.Count(out, "pushed out of") != 1 {
		t.Errorf("doctor says:\n%s", out)
	}
}

// With a pin missing, and after latchd has gone without a word, status and check say the same, whatever pods
// there are.
func TestStatusAndCheckAgree(t *testing.T) {
	n := newNode(t)
	said := state.Status{Ready: true, Node: "n1", Mode: "standard", UpdatedAt: time.Now()}
	release, err := lock.Folder(n.cfg.StateDir)
	if err := errors.Join(err, state.New(n.cfg.StateDir).WriteStatus(said)); err != nil {
		t.Fatal(err)
	}
	agree := func(what string, code int, line string) {
		t.Helper()
		for _, command := range []string{"status", "check"} {
			got, out, errOut := n.run(command)
			if got != code || !strings.Contains(out, line) {
				t.Errorf("%s, %s: exit code %d, want %d and %q in\n%s%s", what, command, got, code, line, out, errOut)
			}
		}
	}
	agree("latchd running", 0, "ready")
	release()
	agree("latchd killed", 0, "not running")
	if err := os.Remove(pins.New(n.cfg.Bpffs).Map("frags")); err != nil {
		t.Fatal(err)
	}
	agree("a pin missing", exitUnhealthy, "frags")
	if err := state.New(n.cfg.StateDir).DeleteAttachment("c1", "eth0"); err != nil {
		t.Fatal(err)
	}
	agree("a pin missing, pods expected only", exitUnhealthy, "frags")
}
