package regress

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// killAfter names the step after which the killable binaries end themselves by SIGKILL.
const killAfter = "LATCH_TEST_KILL_AFTER"

// steps of the write path, in order. From attach on the interface is enforced.
var steps = []string{"intent", "rules", "slot", "pod_state", "seed", "attach", "verify", "record"}

// latch is killed after every step of ADD and of DEL, in a real chain and with senders that never stop.
// What it leaves is a pod that is enforced, if it got as far as attaching, or one that latch is absent
// from, never one that is attached and open. ADD never succeeds, and the next operation, ADD or DEL, leaves
// a complete state.
func TestPluginKilledAfterEveryStep(t *testing.T) {
	// Without an audit: it would complete what the killed plugin left before the next operation does.
	f := newFirst(t, options{bin: binaries(killable), latchd: []string{"--audit-period", "1h"}})
	f.apply(fmt.Sprintf("t1/start app=a IE\nE web udp/%d\nI web udp/%d", outPort, inPort))
	f.open()
	for _, step := range steps {
		for _, next := range []string{"ADD", "DEL"} {
			f.killed(step, next)
		}
	}
	f.shut()
}

func (f *first) killed(step, next string) {
	f.t.Helper()
	what := fmt.Sprintf("killed after %s, then %s", step, next)
	f.begin()
	c := f.chained(f.ns, testenv.PodA, fmt.Sprintf("killed-%d", f.number.Load()))
	if f.number.Load() == 1 {
		c.publish(nil)
	}
	err := f.dies(step, c.addAll)
	if err == nil || !strings.Contains(err.Error(), "killed") {
		f.t.Fatalf("%s: ADD returned %v, want that latch was killed", what, err)
	}
	enforced := slices.Index(steps, step) >= slices.Index(steps, "attach")
	w := window{connected: f.seq.Load() + 1, added: math.MaxInt64, deleted: math.MaxInt64}
	if enforced {
		w.added = f.seq.Load() + 1
	}
	f.pass(what, enforced)
	if next == "ADD" {
		if err := c.latch("ADD"); err != nil {
			f.t.Fatalf("%s: %v", what, err)
		}
		w.added = min(w.added, f.seq.Load()+1)
		f.pass(what, true)
		f.healthy()
		if err := f.dies("unbound", c.delAll); err == nil {
			f.t.Fatalf("%s: DEL succeeded, though latch was to be killed", what)
		}
		w.deleted = f.seq.Load() + 1 // the binding is gone: nothing passes
		f.eventually(arrival, func() error { return f.reached(w.deleted + 1) })
	}
	for range 2 {
		if err := c.delAll(); err != nil {
			f.t.Fatalf("%s: DEL: %v", what, err)
		}
	}
	for _, flow := range f.flows {
		if err := flow.wrong(w); err != nil {
			f.t.Errorf("%s: %s: %v (%+v)", what, flow.name, err, w)
		}
	}
	if left, err := f.store().ListAttachments(); err != nil || len(left) > 0 {
		f.t.Errorf("%s: attachments %+v (%v), want none", what, left, err)
	}
	f.healthy()
	if f.t.Failed() {
		f.t.FailNow()
	}
}

// dies runs something with plugins that end themselves after a step.
func (f *first) dies(step string, run func() error) error {
	f.t.Helper()
	if err := os.Setenv(killAfter, step); err != nil {
		f.t.Fatal(err)
	}
	defer os.Unsetenv(killAfter)
	return run()
}
