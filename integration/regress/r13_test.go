package regress

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/testenv"
)

// running is B under a policy with live traffic: A's stream and new connections must not notice what is
// done to the node, C must never get through.
type running struct {
	*ground
	a, b, c *pod
	streams []*stream
	rain    *rain
	knock   func() []string
}

const (
	r13Policy = "t1/n app=b I\nI A tcp/8080 udp/8080"
	r13Edit   = "t1/n app=b I\nI A tcp/8080 udp/8080 tcp/9090"
)

func newRunning(t *testing.T, o options) *running {
	t.Helper()
	r := &running{ground: newGround(t, o)}
	r.apply(r13Policy)
	r.a, r.b, r.c = r.start("A", testenv.PodA), r.start("B", testenv.PodB), r.start("C", testenv.PodC)
	r.listen("B", 8080)
	r.streams = r.stream("A", 45000, "B", 8080, 20*time.Millisecond)
	r.rain = r.ground.rain("A", "B", 8080, 2*time.Millisecond, 20*time.Millisecond)
	r.knock = r.ground.knock(10*time.Millisecond, "C > B tcp/8080,9090 udp/8080 : deny")
	return r
}

// unharmed ends the traffic and requires that nothing was lost and nothing let through.
func (r *running) unharmed(what string) {
	r.t.Helper()
	r.flowing(what, r.streams, time.Second)
	r.lossless(what, r.rain)
	if arrived := r.knock(); arrived != nil {
		r.t.Errorf("%s: %v", what, arrived)
	}
	r.expect(what, "A > B tcp/8080 : allow\nC > B tcp/8080,9090 : deny")
}

func (r *running) edited(what string) {
	r.t.Helper()
	r.apply(r13Edit)
	r.becomes(what+": the next edit", "A > B tcp/9090 : allow")
	r.healthy()
}

// R13 a: latchd is killed under traffic. Enforcement goes on, the next latchd takes over by pins.
func TestR13WatcherKilledUnderTraffic(t *testing.T) {
	r := newRunning(t, options{})
	before := r.pinned()
	for range 3 {
		r.killLatchd()
		time.Sleep(300 * time.Millisecond)
		r.startLatchd()
	}
	if diff := cmp.Diff(before, r.pinned()); diff != "" {
		t.Errorf("other objects are pinned after the restart (-before +after):\n%s", diff)
	}
	r.edited("latchd killed and started")
	r.unharmed("latchd killed and started")
}

// latchd is killed after every step of the write path, in an update of a live pod.
func TestR13WatcherKilledAfterEveryStep(t *testing.T) {
	r := newRunning(t, options{bin: binaries(killable)})
	for i, step := range steps {
		if err := r.node.StopLatchd(); err != nil {
			t.Fatal(err)
		}
		policy := r13Policy
		if i%2 == 0 {
			policy = r13Edit
		}
		r.apply(policy)
		if err := os.Setenv(killAfter, step); err != nil {
			t.Fatal(err)
		}
		err := r.node.StartLatchd()
		os.Unsetenv(killAfter)
		if err != nil {
			t.Fatal(err)
		}
		r.eventually(10*time.Second, func() error {
			if r.node.Latchd.Running() == nil {
				return errors.New("latchd is still running, it was to be killed after " + step)
			}
			return nil
		})
		r.killLatchd()
		r.expect("killed after "+step, "A > B tcp/8080 : allow\nC > B tcp/8080 : deny")
		r.startLatchd()
		want := "A > B tcp/9090 : deny"
		if i%2 == 0 {
			want = "A > B tcp/9090 : allow"
		}
		r.becomes("killed after "+step+", next latchd", want)
		r.healthy()
	}
	r.unharmed("latchd killed after every step")
}

// R13 b: all pins vanish while the programs stay attached.
func TestR13PinsVanish(t *testing.T) {
	vanish := func(r *running) {
		r.t.Helper()
		if err := os.RemoveAll(filepath.Join(r.node.Bpffs, "latch")); err != nil {
			r.t.Fatal(err)
		}
	}
	t.Run("latchd is down", func(t *testing.T) {
		r := newRunning(t, options{})
		before := r.pinned()
		r.killLatchd()
		vanish(r)
		r.startLatchd()
		r.eventually(inForce, r.audit)
		if after := r.pinned(); maps.Equal(before, after) {
			t.Error("the same objects are pinned as before")
		}
		r.edited("pins gone, latchd started")
		r.unharmed("pins gone, latchd started")
	})
	t.Run("latchd is running", func(t *testing.T) {
		r := newRunning(t, options{})
		before := r.pinned()
		vanish(r)
		r.edited("pins gone under latchd")
		if diff := cmp.Diff(before, r.pinned()); diff != "" {
			t.Errorf("latchd had them open and pinned others (-before +after):\n%s", diff)
		}
		r.unharmed("pins gone under latchd")
	})
	t.Run("latchd is running, a pod starts first", func(t *testing.T) {
		r := newRunning(t, options{})
		vanish(r)
		p := r.pod("E", testenv.PodSpec{Namespace: "t1", Name: "e", Labels: map[string]string{"app": "b"}, Addr4: "10.0.1.77", Addr6: "fd00:10:1::77"})
		p.publish(nil)
		if err := p.tryAdd(nil); err != nil {
			r.eventually(inForce, func() error { return p.tryAdd(nil) }) // as a runtime does
		}
		r.expect("new pod", "A > E tcp/8080 : allow\nC > E tcp/8080 : deny")
		r.edited("pins gone under latchd, made by the plugin")
		r.unharmed("pins gone under latchd, made by the plugin")
	})
}

// R13 c: after a reboot nothing is left in the kernel, while old records and lock files may be. ADD before
// the watcher never trusts them.
func TestR13Reboot(t *testing.T) {
	for _, kept := range []bool{false, true} {
		name := "records are gone"
		if kept {
			name = "records are kept"
		}
		t.Run(name, func(t *testing.T) {
			g := newGround(t, options{latchd: []string{"--audit-period", "1s"}})
			g.apply(r13Policy)
			g.start("A", testenv.PodA)
			b := g.start("B", testenv.PodB)
			g.start("C", testenv.PodC)
			g.killLatchd()
			for _, p := range g.added {
				p.end() // no DEL: the node went down
			}
			for _, dir := range []string{filepath.Join(g.node.Bpffs, "latch"), g.node.StateDir} {
				if dir == g.node.StateDir && kept {
					continue
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			clear(g.added)

			a, c := g.pod("A", testenv.PodA), g.pod("C", testenv.PodC)
			old := b.container
			b = g.pod("B", testenv.PodB)
			if err := b.tryAdd(map[string]any{"policyWait": "200ms"}); err == nil {
				g.expect("ADD succeeded before latchd runs", "A > B tcp/8080 : allow\nC > B tcp/8080 : deny")
			} else if attached, _ := g.store().ReadAttachment(b.container, "eth0"); attached.Phase != "" {
				t.Errorf("ADD failed with %v and left %+v", err, attached)
			}
			g.startLatchd()
			for _, p := range []*pod{a, b, c} {
				p.add()
			}
			g.expect("latchd runs", "A > B tcp/8080 : allow\nC > B tcp/8080 : deny")
			g.apply(r13Edit)
			g.becomes("edit", "A > B tcp/9090 : allow")
			if kept { // the audit finds them, and a late DEL does no harm
				if _, err := g.invoke("DEL", g.bin, map[string]string{"CNI_CONTAINERID": old, "CNI_IFNAME": "eth0", "CNI_PATH": g.bin.Dir}, g.entry()); err != nil {
					t.Error(err)
				}
				g.eventually(20*time.Second, g.audit)
			}
			g.expect("at the end", "A > B tcp/8080,9090 : allow\nC > B tcp/8080 : deny")
		})
	}
}

// R13 e: latchd starts while its source of policy does not answer. Nothing is deleted before it does.
func TestR13SourceDoesNotAnswer(t *testing.T) {
	r := newRunning(t, options{})
	r.killLatchd()
	away := r.node.PolicyDir + "-away"
	if err := os.Rename(r.node.PolicyDir, away); err != nil {
		t.Fatal(err)
	}
	if err := r.node.StartLatchd(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	r.expect("no policy directory", "A > B tcp/8080 : allow\nC > B tcp/8080,9090 : deny")
	r.healthy()
	if err := os.Rename(away, r.node.PolicyDir); err != nil {
		t.Fatal(err)
	}
	if r.node.Latchd.Running() != nil { // its supervisor starts it again
		r.killLatchd()
		r.startLatchd()
	}
	r.edited("policy directory is back")
	r.unharmed("policy directory is back")
}

// R13 g: no bpffs where it should be. It is mounted, or ADD fails; a pod is never let in without filter.
func TestR13NoBPFFS(t *testing.T) {
	for _, mode := range []string{"standard", "strict"} {
		t.Run(mode, func(t *testing.T) {
			g := newGround(t, options{})
			g.start("A", testenv.PodA)
			b := g.pod("B", testenv.PodB)
			b.publish(nil)
			g.killLatchd() // it would take the pod over to where its own objects are
			bpffs := filepath.Join(g.node.Dir, "none")
			t.Cleanup(func() { _ = unmount(bpffs) })
			err := b.tryAdd(map[string]any{"bpffs": bpffs, "policyWait": "200ms", "enforcingMode": mode})
			if (err == nil) != (mode == "strict") {
				t.Errorf("ADD: %v; strict mode denies a pod of which the kernel knows nothing, standard mode asks to try again", err)
			}
			if err == nil {
				if _, err := os.Stat(pins.New(bpffs).Map("pod_state")); err != nil {
					t.Error(err)
				}
				if n := len(arrivals(g, "A > B tcp/8080 : deny\nB > A udp/53 : deny")); n > 0 {
					t.Errorf("%d packets passed", n)
				}
				if _, err := g.invoke("DEL", g.bin, b.env(), b.conf(map[string]any{"bpffs": bpffs})); err != nil {
					t.Error(err)
				}
			}
			delete(g.added, b.container)
			g.startLatchd()
		})
	}
}
