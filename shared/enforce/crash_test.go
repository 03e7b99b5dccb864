//go:build latchtest

package enforce

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// steps are the crash points of Apply, in its order.
var steps = []string{"intent", "rules", "slot", "pod_state", "seed", "attach", "verify", "record"}

// TestWriter runs one Apply, in the namespace that the process was started in, when the environment asks
// for it: this is the writer that the crash tests kill.
func TestWriter(t *testing.T) {
	if os.Getenv("LATCH_TEST_WRITER") == "" {
		return // not asked for
	}
	e, err := Open(ctx, Config{Bpffs: os.Getenv("LATCH_TEST_BPFFS"), StateDir: os.Getenv("LATCH_TEST_STATE"),
		AttachMode: attach.ModeAuto, LockTimeout: lockTimeout, Sizes: bpf.Sizes{Flows4: 1024, Flows6: 1024, Frags: 64}})
	if err != nil {
		t.Fatal(err)
	}
	index, err := strconv.Atoi(os.Getenv("LATCH_TEST_IFINDEX"))
	if err != nil {
		t.Fatal(err)
	}
	held, err := e.Lock(ctx, idA)
	if err != nil {
		t.Fatal(err)
	}
	req := Request{Identifier: idA}
	switch os.Getenv("LATCH_TEST_WRITER") {
	case "plugin":
		req.Bind = []state.Attachment{attachment(state.Interface{Ifindex: index, Name: "lt0"})}
	case "adopter":
		req.Create, req.Bind = allowPorts(openPort), []state.Attachment{adopted(state.Interface{Ifindex: index, Name: "lt0"})}
	default:
		req.Create, req.Verify = rulesNamed(os.Getenv("LATCH_TEST_WRITER")), true
	}
	if _, err := e.Apply(ctx, held, req); err != nil {
		t.Fatal(err)
	}
}

// rulesNamed are the rules that a writer process is asked to write.
func rulesNamed(name string) *policy.Rules {
	if name == "many" {
		return manyPeers(5000)
	}
	return allowPeers(nodeAddr + "/32")
}

// kill runs a writer that dies after a step, and asserts that it did.
func (g *ground) kill(writer, step string) {
	g.t.Helper()
	var cmd *exec.Cmd
	g.do(func() error {
		cmd = exec.Command(os.Args[0], "-test.run=^TestWriter$", "-test.v")
		cmd.Env = append(os.Environ(), "LATCH_TEST_WRITER="+writer, "LATCH_TEST_KILL_AFTER="+step,
			"LATCH_TEST_BPFFS="+g.cfg.Bpffs, "LATCH_TEST_STATE="+g.cfg.StateDir, fmt.Sprintf("LATCH_TEST_IFINDEX=%d", g.iface.Ifindex))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			return fmt.Errorf("writer was not killed after %s: %v\n%s", step, err, out)
		}
		return nil
	})
}

// The plugin is killed after every step of an ADD: the interface is absent (not attached) or enforced,
// never attached and open; and the next ADD leaves everything in force.
func TestPluginKilledAtEveryStep(t *testing.T) {
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			g := newGround(t)
			g.apply(Request{Identifier: idA, Create: allowPorts(openPort)})
			g.kill("plugin", step)
			attached := false
			g.do(func() error {
				s, err := g.query(g.o(), attach.FromPod)
				attached = s.Attached
				return err
			})
			if want := step == "attach" || step == "verify" || step == "record"; attached != want {
				t.Errorf("killed after %s: attached %v, want %v", step, attached, want)
			}
			g.wantVerdicts("killed after "+step, true, !attached)
			g.apply(Request{Identifier: idA, Bind: []state.Attachment{attachment(g.iface)}})
			g.wantVerdicts("next ADD", true, false)
			g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
			g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
			g.forget(idA)
			g.wantNothingLeft()
		})
	}
}

// The watcher is killed after every step of an adoption: the pod is as it was, or enforced; and the next
// watcher completes it.
func TestWatcherKilledAtEveryStepOfAnAdoption(t *testing.T) {
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			g := newGround(t)
			g.kill("adopter", step)
			untouched := false
			g.do(func() error {
				untouched = len(g.sidesOn()) == 0
				return nil
			})
			if want := step != "attach" && step != "verify" && step != "record"; untouched != want {
				t.Errorf("killed after %s: untouched %v, want %v", step, untouched, want)
			}
			g.wantVerdicts("killed after "+step, true, untouched)
			g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{adopted(g.iface)}, Verify: true})
			g.wantVerdicts("next watcher", true, false)
			g.do(func() error { return g.e.Check(ctx, state.AdoptedContainer("u1"), "eth0") })
			g.do(func() error { return g.e.Remove(ctx, state.AdoptedContainer("u1"), "eth0") })
			g.forget(idA)
			g.wantNothingLeft()
		})
	}
}

// The watcher is killed after every step of an update of a live pod, in place and into a spare slot:
// what the pod reaches is what the old or the new rules say, and the next writer completes it.
func TestWatcherKilledAtEveryStep(t *testing.T) {
	for _, rules := range []string{"node", "many"} {
		for _, step := range steps {
			t.Run(rules+" "+step, func(t *testing.T) {
				g := newGround(t)
				g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
				g.wantVerdicts("old rules", true, false)
				g.kill(rules, step)
				open, shut := g.passes(openPort), g.passes(shutPort)
				if rules == "many" && shut {
					t.Errorf("killed after %s: port %d passes, which neither the old nor the new rules allow", step, shutPort)
				}
				if old, next := open && !shut, open == (rules == "node") && shut == open; !old && !next {
					t.Errorf("killed after %s: ports %d %v, %d %v are neither what the old nor the new rules say", step, openPort, open, shutPort, shut)
				}
				g.apply(Request{Identifier: idA, Create: rulesNamed(rules), Verify: true})
				g.wantVerdicts("next writer", rules == "node", rules == "node")
				g.do(func() error { return g.e.Check(ctx, "c1", "eth0") })
				g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
				g.forget(idA)
				g.wantNothingLeft()
			})
		}
	}
}

// A watcher that is killed again and again, as one that lacks memory for its rules is, takes one slot and not one each time.
func TestWatcherKilledAgainAndAgain(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	for range 3 {
		g.kill("many", "rules")
	}
	if slots := g.o().slotsOf(idA.Bytes()); len(slots) != 2 {
		t.Errorf("slots %v are taken", slots)
	}
	g.wantVerdicts("old rules", true, false)
}

// The watcher is killed while it gives a slot back: the next one ends that.
func TestWatcherKilledGivingASlotBack(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	g.kill("many", "emptied")
	g.apply(Request{Identifier: idA, Create: rulesNamed("many"), Verify: true})
	g.do(func() error { return g.e.Remove(ctx, "c1", "eth0") })
	g.forget(idA)
	g.wantNothingLeft()
}

func (g *ground) o() *objects { return g.e.objects }
