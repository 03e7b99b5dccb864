package upgrade

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/pins"
)

// Figures are what an upgrade, and the way back, have done.
type Figures struct {
	Replaced             int           // how often the pinned programs became other ones
	There, Back          time.Duration // from the start of the other latchd until an edit was in force
	Answers, LostAnswers int64         // of live flows
	stage.Verdicts
	Said string // by what was refused
}

func (f Figures) String() string {
	text := fmt.Sprintf("programs replaced %d times, an edit in force %v after the start, %v on the way back, %d datagrams, %d lost, %d slipped through, %d answers of live flows, %d lost",
		f.Replaced, f.There.Round(time.Millisecond), f.Back.Round(time.Millisecond), f.Sent, f.Lost, f.Slipped, f.Answers, f.LostAnswers)
	if f.Said != "" {
		text += "; refused: " + f.Said
	}
	return text
}

// Run goes from another build of the same layout to that of o, and back.
func Run(ctx context.Context, o stage.Options, from *harness.Binaries) (f Figures, err error) {
	sc, err := newScene(ctx, o, from)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, sc.close(ctx)) }()
	for _, way := range []struct {
		to   *harness.Binaries
		took *time.Duration
	}{{o.Binaries, &f.There}, {from, &f.Back}} {
		before, err := sc.programs()
		if err != nil {
			return f, err
		}
		// The plugin is replaced first, as an installation does.
		sc.s.Use(way.to)
		if err := sc.starts(ctx); err != nil {
			return f, fmt.Errorf("pod of the new plugin, latchd is the old one: %w", err)
		}
		began := time.Now()
		if err := sc.restart(ctx, way.to); err != nil {
			return f, err
		}
		if _, err := sc.edited(); err != nil {
			return f, err
		}
		*way.took = time.Since(began)
		after, err := sc.programs()
		if err != nil {
			return f, err
		}
		if before != after {
			f.Replaced++
		}
		err = errors.Join(sc.s.Whole(ctx, 4, patience), sc.starts(ctx), sc.othersStay(), sc.talk.Goes(patience))
		if err != nil {
			return f, err
		}
	}
	err = sc.end(&f)
	if f.LostAnswers > 0 {
		err = errors.Join(err, fmt.Errorf("of %d answers to live flows %d were lost", f.Answers, f.LostAnswers))
	}
	return f, err
}

// programs tells which programs are pinned, by what they do.
func (sc *scene) programs() (tags [2]string, err error) {
	for i, side := range attach.Sides {
		p, err := pins.LoadProgram(pins.New(sc.s.Node.Bpffs).Prog(side.String()), nil)
		if err != nil {
			return tags, err
		}
		info, err := p.Info()
		_ = p.Close()
		if err != nil {
			return tags, err
		}
		tags[i] = info.Tag
	}
	return tags, nil
}
