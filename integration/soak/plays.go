package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/capacity"
	"github.com/latch-cni/latch/integration/soak/crash"
	"github.com/latch-cni/latch/integration/soak/damage"
	"github.com/latch-cni/latch/integration/soak/overload"
	"github.com/latch-cni/latch/integration/soak/race"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/integration/soak/upgrade"
)

type options struct {
	Seed     uint64
	Length   time.Duration
	Binaries *harness.Binaries
	Log      *slog.Logger
	Parallel int            // pods of the race
	Period   time.Duration  // of its policies
	Match    *regexp.Regexp // of damages
}

// play is one of the plays. What is played for a length of time gets a share of the whole, so that what takes
// what it takes has its time, too.
type play struct {
	name string
	run  func(context.Context, options, *report) error
}

var plays = []play{
	{"damage", playDamage},
	{"upgrade", playUpgrade},
	{"crash", playCrash},
	{"race", playRace},
	{"capacity", playCapacity},
	{"overload", playOverload},
}

// share is a part of the length, in percent.
func (o options) share(percent int) time.Duration { return o.Length * time.Duration(percent) / 100 }

// playsOf tells whether a play is among those that are asked for.
func playsOf(only, name string) bool {
	return only == "" || strings.Contains(","+only+",", ","+name+",")
}

func playAll(ctx context.Context, o options, only string, r *report) error {
	for _, p := range plays {
		if !playsOf(only, p.name) {
			continue
		}
		r.begin(p.name)
		began := time.Now()
		if err := p.run(ctx, o, r); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		r.figure("all of it", "took %v", time.Since(began).Round(time.Second))
	}
	return nil
}

func (o options) stage(latchd ...string) stage.Options {
	return stage.Options{Binaries: o.Binaries, Log: o.Log, Latchd: latchd}
}

func playDamage(ctx context.Context, o options, r *report) error {
	return damage.Play(ctx, o.stage(), 500*time.Millisecond, func(d damage.Damage) bool { return o.Match.MatchString(d.Name) }, func(out damage.Outcome) {
		r.check(out.Damage, out.Err)
		r.figure(out.Damage, "mended after %v, %d slipped through: %s", out.Took.Round(time.Millisecond), out.Slipped, out.Said)
	})
}

func playUpgrade(ctx context.Context, o options, r *report) error {
	for _, from := range []string{harness.Previous, harness.Other} {
		name := "from the build " + from + " and back"
		if !o.Binaries.HasVariant(from) {
			r.figure(name, "not played: there is no commit before this one")
			continue
		}
		f, err := upgrade.Run(ctx, o.stage(), o.Binaries.Variant(from))
		r.check(name, err)
		r.figure(name, "%v", f)
	}
	f, err := upgrade.Layout(ctx, o.stage(), o.Binaries.Variant(harness.NextLayout))
	r.check("to the next layout", err)
	r.figure("to the next layout", "%v", f)
	return nil
}

func playCrash(ctx context.Context, o options, r *report) error {
	k, err := crash.Kill(ctx, o.stage(), o.rand(), o.share(10))
	r.check("killed at random", err)
	r.figure("killed at random", "%d plugins (%d had ended), %d latchd, %d versions of policy, %d datagrams, %d lost, %d slipped through",
		k.Plugin, k.Survived, k.Latchd, k.Versions, k.Sent, k.Lost, k.Slipped)
	p, err := crash.Pause(ctx, o.stage(), o.rand(), o.share(3))
	r.check("latchd stopped", err)
	r.figure("latchd stopped", "%d times, %d pods started meanwhile, %d refused, %d versions of policy, %d datagrams, %d lost, %d slipped through",
		p.Stops, p.Started, p.Refused, p.Versions, p.Sent, p.Lost, p.Slipped)
	var wg sync.WaitGroup
	wg.Go(func() { playStopped(ctx, o, r) }) // waits for a minute
	defer wg.Wait()
	for _, l := range crash.Losses() {
		r.check(l.Name+", latchd running", crash.Lose(ctx, o.stage(), l, true))
		if l.Plays(false) {
			r.check(l.Name+", latchd not running", crash.Lose(ctx, o.stage(), l, false))
		}
	}
	r.check("disk full", crash.DiskFull(ctx, o.stage()))
	starved, err := crash.Starve(ctx, o.stage())
	r.check("starved", err)
	r.figure("starved", "%d runs, %d refused, %d in force: %v", starved.Runs, starved.Refused, starved.InForce, starved.Messages)
	st, err := crash.StarveLatchd(ctx, o.stage(), crash.Calls, unix.EPERM, unix.ENOMEM)
	r.check("latchd starved", err)
	r.figure("latchd starved", "%d runs: %d ended, %d reported that the policy is not in force, in %d it was", st.Runs, st.Ended, st.Behind, st.InForce)
	return nil
}

// playStopped stops the holder of a lock, for up to a minute.
func playStopped(ctx context.Context, o options, r *report) {
	for _, remove := range []bool{true, false} {
		hold, name := min(time.Minute, o.share(10)), "holder of a lock stopped"
		if remove {
			hold, name = 0, name+", its file removed"
		}
		st, err := crash.Stop(ctx, o.stage(), o.rand(), remove, hold)
		r.check(name, err)
		r.figure(name, "for %v, after %d tries; the next one said after %v: %s", st.Held.Round(time.Second), st.Tries, st.Waited.Round(time.Millisecond), st.Message)
	}
}

func (o options) rand() *rand.Rand { return rand.New(rand.NewPCG(o.Seed, 0)) }

func playRace(ctx context.Context, o options, r *report) error {
	f, err := race.Run(ctx, o.stage(), o.rand(), race.Options{Length: o.share(13), Parallel: o.Parallel, Identifiers: 50, Apps: 5, Period: o.Period})
	name := fmt.Sprintf("%d pods over 50 identifiers", o.Parallel)
	r.check(name, err)
	r.figure(name, "%d ADD (p50 %v, p99 %v, told %d times to try again), %d moves of labels, %d versions, %d looks, %d datagrams, %d lost, %d slipped through",
		f.Adds, f.AddP50.Round(time.Millisecond), f.AddP99.Round(time.Millisecond), f.Retried, f.Moves, f.Versions, f.Looks, f.Sent, f.Lost, f.Slipped)
	return nil
}

func playCapacity(ctx context.Context, o options, r *report) error {
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"100,000 peers", func() error { return capacity.Peers(ctx, o.stage(), 100_000, r.figure) }},
		{"737 pods of 1,000 identifiers", func() error {
			return capacity.Pods(ctx, o.stage(), 737, 1000, capacity.Rate{PerSecond: 1000, Length: min(time.Minute, o.share(10))}, r.figure)
		}},
		{"policy too big", func() error { return capacity.TooBig(ctx, o.stage(), r.figure) }},
		{"slots exhausted", func() error { return capacity.Slots(ctx, o.stage(), bpf.MaxSlots-bpf.FirstSlot, r.figure) }},
		{"leaks", func() error { return capacity.Leaks(ctx, o.stage(), o.share(10), leakPods(o.Length), r.figure) }},
	} {
		if o.Match.MatchString(part.name) {
			r.check(part.name, part.run())
		}
	}
	return nil
}

// leakPods is how many pods come and go at least: 10,000 in a run of ten minutes.
func leakPods(length time.Duration) int { return max(50, int(10_000*length/(10*time.Minute))) }

func playOverload(ctx context.Context, o options, r *report) error {
	const rate = 50_000
	f, err := overload.Run(ctx, o.stage(), rate, min(o.share(10), time.Minute))
	r.check("denied packets", err)
	r.figure("denied packets", "%d in %v (%.0f a second), %d counted, %d events lost, flow log %d kB, latchd used %.2f of a processor, beside it %d datagrams, %d lost",
		f.Sent, f.Took.Round(time.Second), float64(f.Sent)/f.Took.Seconds(), f.Counted, f.LostEvents, f.LogBytes>>10,
		f.LatchdCPU.Seconds()/f.Took.Seconds(), f.Verdicts.Sent, f.Lost)
	return nil
}
