package main

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/damage"
	"github.com/latch-cni/latch/integration/soak/stage"
)

type options struct {
	Seed     uint64
	Length   time.Duration
	Binaries *harness.Binaries
	Log      *slog.Logger
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
}

func playAll(ctx context.Context, o options, only string, r *report) error {
	for _, p := range plays {
		if only != "" && !strings.Contains(","+only+",", ","+p.name+",") {
			continue
		}
		part := o
		part.Length = time.Duration(float64(o.Length) * p.share)
		r.begin(p.name)
		if err := p.run(ctx, part, r); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
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
