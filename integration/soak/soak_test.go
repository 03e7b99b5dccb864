package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/ready"
	"github.com/latch-cni/latch/integration/soak/capacity"
	"github.com/latch-cni/latch/integration/soak/crash"
	"github.com/latch-cni/latch/integration/soak/damage"
	"github.com/latch-cni/latch/integration/soak/overload"
	"github.com/latch-cni/latch/integration/soak/race"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/integration/soak/upgrade"
	"github.com/latch-cni/latch/shared/testenv"
)

func TestMain(m *testing.M) {
	crash.Helper()
	ready.Main(m, harness.BinariesEnv, func(ctx context.Context, b *harness.Binaries) error { return b.BuildVariants(ctx) })
}

// on is a stage on the binaries that TestMain has built.
func on(t *testing.T) stage.Options {
	t.Helper()
	testenv.RequireRoot(t)
	return stage.Options{Binaries: ready.Build(t)}
}

// Everything that can be broken by hand is mended by the audit, and closed until then.
func TestDamage(t *testing.T) {
	err := damage.Play(t.Context(), on(t), 250*time.Millisecond, nil, func(out damage.Outcome) {
		if out.Err != nil {
			t.Errorf("%s: %v", out.Damage, out.Err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// built are the binaries that TestMain has built, with their variants.
func built() *harness.Binaries { return &harness.Binaries{Dir: os.Getenv(harness.BinariesEnv)} }

// Another build of the same layout takes over under traffic, and gives back.
func TestUpgrade(t *testing.T) {
	for _, from := range []string{harness.Previous, harness.Other} {
		t.Run(from, func(t *testing.T) {
			o := on(t)
			if !built().HasVariant(from) {
				t.Log("not played: there is no commit before this one")
				return
			}
			f, err := upgrade.Run(t.Context(), o, built().Variant(from))
			t.Logf("%v", f)
			if err != nil {
				t.Error(err)
			}
			if from == harness.Other && f.Replaced != 2 {
				t.Errorf("programs were replaced %d times, want there and back", f.Replaced)
			}
		})
	}
}

// A build of the next layout takes over under traffic and removes what the old one has left; the old one
// refuses to come back.
func TestNextLayout(t *testing.T) {
	f, err := upgrade.Layout(t.Context(), on(t), built().Variant(harness.NextLayout))
	t.Logf("%v", f)
	if err != nil {
		t.Error(err)
	}
}

// seeded are the random numbers of a test, the same in every run.
func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// Processes that are killed at random instructions leave nothing open and nothing that the next one
// cannot finish.
func TestKill(t *testing.T) {
	k, err := crash.Kill(t.Context(), on(t), seeded(), 4*time.Second)
	if err != nil {
		t.Errorf("%+v: %v", k, err)
	}
	if k.Plugin == 0 || k.Latchd == 0 || k.Sent == 0 {
		t.Errorf("nothing was played: %+v", k)
	}
}

// A stopped holder of a lock holds up its identifier alone, others say so, and it brings nothing back when
// it wakes.
func TestStop(t *testing.T) {
	for _, remove := range []bool{false, true} {
		if st, err := crash.Stop(t.Context(), on(t), seeded(), remove, 0); err != nil {
			t.Errorf("%+v: %v", st, err)
		}
	}
}

// What a node loses is made again, and pods are closed or judged as before meanwhile.
func TestLose(t *testing.T) {
	for _, l := range crash.Losses() {
		for _, running := range []bool{true, false} {
			if !l.Plays(running) {
				continue
			}
			t.Run(fmt.Sprintf("%s, latchd running %v", l.Name, running), func(t *testing.T) {
				if err := crash.Lose(t.Context(), on(t), l, running); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestDiskFull(t *testing.T) {
	if err := crash.DiskFull(t.Context(), on(t)); err != nil {
		t.Error(err)
	}
}

// Without descriptors, memory or permission the plugin refuses or is in force.
func TestStarve(t *testing.T) {
	st, err := crash.Starve(t.Context(), on(t))
	if err != nil {
		t.Errorf("%+v: %v", st, err)
	}
}

// latchd that is stopped goes on where it was, and holds up nobody for longer than they wait.
func TestPause(t *testing.T) {
	p, err := crash.Pause(t.Context(), on(t), seeded(), 2*time.Second)
	if err != nil {
		t.Errorf("%+v: %v", p, err)
	}
}

// A latchd whose calls of the kernel fail leaves the old policy or the new one, and says so.
func TestStarveLatchd(t *testing.T) {
	st, err := crash.StarveLatchd(t.Context(), on(t), crash.Calls[:3], unix.ENOMEM)
	if err != nil {
		t.Errorf("%+v: %v", st, err)
	}
}

// Pods come and go, move and are judged while everything changes.
func TestRace(t *testing.T) {
	f, err := race.Run(t.Context(), on(t), seeded(), race.Options{Length: 6 * time.Second, Parallel: 12, Identifiers: 10, Apps: 2, Period: 20 * time.Millisecond})
	if err != nil {
		t.Errorf("%+v: %v", f, err)
	}
	if f.Adds == 0 || f.Moves == 0 || f.Looks == 0 || f.Sent == 0 {
		t.Errorf("nothing was played: %+v", f)
	}
}

// Small versions of what the program measures on a full node.
func TestCapacity(t *testing.T) {
	tell := func(what, format string, args ...any) { t.Logf("%s: %s", what, fmt.Sprintf(format, args...)) }
	if err := capacity.Peers(t.Context(), on(t), 3000, tell); err != nil {
		t.Error(err)
	}
	if err := capacity.Pods(t.Context(), on(t), 12, 30, capacity.Rate{PerSecond: 100, Length: 2 * time.Second}, tell); err != nil {
		t.Error(err)
	}
	if err := capacity.TooBig(t.Context(), on(t), tell); err != nil {
		t.Error(err)
	}
	if err := capacity.Leaks(t.Context(), on(t), 2*time.Second, 50, tell); err != nil {
		t.Error(err)
	}
}

// Denied packets are counted, each of them, however many there are; the log is bounded.
func TestOverload(t *testing.T) {
	f, err := overload.Run(t.Context(), on(t), 20_000, 3*time.Second)
	if err != nil {
		t.Errorf("%+v: %v", f, err)
	}
}
