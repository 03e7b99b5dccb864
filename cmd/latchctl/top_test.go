package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// tmux is a terminal of a size, with latchctl top in it.
type tmux struct {
	*node
	socket string
}

func (x tmux) call(args ...string) (string, error) {
	out, err := exec.Command("tmux", append([]string{"-L", x.socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
	return string(out), err
}

// wait waits for a screen that has all of want.
func (x tmux) wait(want ...string) (screen string) {
	x.t.Helper()
	testenv.Eventually(x.t, 10*time.Second, func() error {
		var err error
		if screen, err = x.call("capture-pane", "-p", "-t", "top"); err != nil {
			return fmt.Errorf("%s: %w", screen, err)
		}
		if !containsAll(screen, want) {
			return fmt.Errorf("no %q on the screen:\n%s", want, screen)
		}
		return nil
	})
	return screen
}

func TestTopInATerminal(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		testenv.Missing(t, "needs tmux: hack/setup")
	}
	n := newNode(t)
	binary := filepath.Join(t.TempDir(), "latchctl")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	flows := filepath.Join(t.TempDir(), "flows.log")
	if err := state.New(n.cfg.StateDir).WriteSettings(state.NodeSettings{Bpffs: n.cfg.Bpffs, FlowLog: flows}); err != nil {
		t.Fatal(err)
	}
	pod := testenv.PodA.Namespace + "/" + testenv.PodA.Name
	for _, size := range [][2]int{{80, 24}, {220, 50}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			x := tmux{n, fmt.Sprintf("latch-%d-%d", os.Getpid(), size[0])}
			t.Cleanup(func() { _, _ = x.call("kill-server") }) // gone already, mostly
			n.do(func() error {                                // the server runs where it is started
				out, err := x.call("new-session", "-d", "-s", "top", "-x", fmt.Sprint(size[0]), "-y", fmt.Sprint(size[1]),
					binary+" top --state-dir "+n.cfg.StateDir+"; sleep 1; echo the end; exec cat")
				if err != nil {
					return fmt.Errorf("tmux: %s: %w", out, err)
				}
				return nil
			})
			x.wait("latch  ", "not in force 0", pod, "enforced", "q quits")
			line := fmt.Sprintf(`{"time":%q,"namespace":%q,"pod":%q,"direction":"ingress","src":"198.18.7.7","srcPort":4711,"dst":"198.18.0.2","dstPort":80,`+
				`"protocol":"TCP","verdict":"deny","reason":"policy","tier":"NetworkPolicy","bytes":60}`+"\n", time.Now().Format(time.RFC3339Nano), testenv.PodA.Namespace, testenv.PodA.Name)
			if err := os.WriteFile(flows, []byte(strings.Repeat(line, 3)), 0o600); err != nil {
				t.Fatal(err)
			}
			screen := x.wait("3  ingress", "198.18.7.7 -> 198.18.0.2:80")
			for line := range strings.Lines(screen) {
				if got := utf8.RuneCountInString(strings.TrimRight(line, "\n")); got > size[0] {
					t.Errorf("%d columns in %q", got, line)
				}
			}
			t.Logf("\n%s", screen)
			if out, err := x.call("resize-window", "-t", "top", "-x", "100", "-y", "12"); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			x.wait(pod, "q quits")
			if out, err := x.call("send-keys", "-t", "top", "q"); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			if screen := x.wait("the end"); strings.Contains(screen, "q quits") {
				t.Errorf("top is left on the screen:\n%s", screen)
			}
			if out, err := x.call("kill-server"); err != nil {
				t.Errorf("%s: %v", out, err)
			}
		})
	}
}

func TestTopWithoutATerminal(t *testing.T) {
	n := newNode(t)
	if code, _, errOut := n.run("top"); code != exitUsage || !strings.Contains(errOut, "--once") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	if code, out, errOut := n.run("top", "--once"); code != 0 || !containsAll(out, []string{testenv.PodA.Name, "POD ", "DENIED "}) || strings.Contains(out, "quits") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	wantParses(t, n, "json", []string{"top", "-o", "json"})
}
