package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

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

// play is one of the plays; share is how much of the length it gets.
type play struct {
	name  string
	share float64
	run   func(context.Context, options, *report) error
}

var plays = []play{
	{"damage", 0, playDamage},
	{"upgrade", 0, playUpgrade},
	{"crash", 0.3, playCrash},
	{"race", 0.3, playRace},
	{"capacity", 0.3, playCapacity},
	{"overload", 0.1, playOverload},
}

// playsOf tells whether a play is among those that are asked for.
func playsOf(only, name string) bool {
	return only == "" || strings.Contains(","+only+",", ","+name+",")
}

func playAll(ctx context.Context, o options, only string, r *report) error {
	for _, p := range plays {
		if !playsOf(only, p.name) {
			continue
		}
		part := o
		part.Length = time.Duration(float64(o.Length) * p.share)
		r.begin(p.name)
		began := time.Now()
		if err := p.run(ctx, part, r); err != nil {
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
	return damage.Play(ctx, o.stage(), time.Second, func(d damage.Damage) bool { return o.Match.MatchString(d.Name) }, func(out damage.Outcome) {
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
	k, err := crash.Kill(ctx, o.stage(), o.rand(), o.Length)
	r.check("killed at random", err)
	r.figure("killed at random", "%d plugins (%d had ended), %d latchd, %d versions of policy, %d datagrams, %d lost, %d slipped through",
		k.Plugin, k.Survived, k.Latchd, k.Versions, k.Sent, k.Lost, k.Slipped)
	for _, remove := range []bool{false, true} {
		st, err := crash.Stop(ctx, o.stage(), o.rand(), remove)
		name := "holder of a lock stopped"
		if remove {
			name += ", its file removed"
		}
		r.check(name, err)
		r.figure(name, "after %d tries; the next one said after %v: %s", st.Tries, st.Waited.Round(time.Millisecond), st.Message)
	}
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
	return nil
}

func (o options) rand() *rand.Rand { return rand.New(rand.NewPCG(o.Seed, 0)) }

func playRace(ctx context.Context, o options, r *report) error {
	f, err := race.Run(ctx, o.stage(), o.rand(), race.Options{Length: o.Length, Parallel: o.Parallel, Identifiers: 50, Apps: 5, Period: o.Period})
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
			return capacity.Pods(ctx, o.stage(), 737, 1000, capacity.Rate{PerSecond: 1000, Length: min(time.Minute, o.Length/3)}, r.figure)
		}},
		{"slots exhausted", func() error { return capacity.Slots(ctx, o.stage(), bpf.MaxSlots-bpf.FirstSlot, r.figure) }},
		{"leaks", func() error { return capacity.Leaks(ctx, o.stage(), o.Length, leakPods(o.Length), r.figure) }},
	} {
		if o.Match.MatchString(part.name) {
			r.check(part.name, part.run())
		}
	}
	return nil
}

// leakPods is how many pods come and go at least: 10,000 in a run of ten minutes, which gives three to this.
func leakPods(length time.Duration) int { return max(50, int(10_000*length/(3*time.Minute))) }

func playOverload(ctx context.Context, o options, r *report) error {
	const rate = 50_000
	f, err := overload.Run(ctx, o.stage(), rate, min(o.Length, time.Minute))
	r.check("denied packets", err)
	r.figure("denied packets", "%d in %v (%.0f a second), %d counted, %d events lost, flow log %d kB, latchd used %.2f of a processor, beside it %d datagrams, %d lost",
		f.Sent, f.Took.Round(time.Second), float64(f.Sent)/f.Took.Seconds(), f.Counted, f.LostEvents, f.LogBytes>>10,
		f.LatchdCPU.Seconds()/f.Took.Seconds(), f.Verdicts.Sent, f.Lost)
	return nil
}
