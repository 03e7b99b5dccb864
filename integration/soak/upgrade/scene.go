package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/pins"
)

const patience = 10 * time.Second

// scene is a node with pods under traffic.
type scene struct {
	s       *stage.Stage
	policy  stage.Policy
	watched []*stage.Pod // that are sent to all the time
	talking []*stage.Pod // with one flow each
	watch   *stage.Watch
	talk    *stage.Talk
	others  map[string]os.FileInfo // pins of others
	young   int
}

func newScene(ctx context.Context, o stage.Options, b *harness.Binaries) (*scene, error) {
	o.Binaries = b
	s, err := stage.New(ctx, o)
	if err != nil {
		return nil, err
	}
	sc := &scene{s: s, policy: stage.Policy{App: "a", Peers: 20}, others: map[string]os.FileInfo{}}
	if err := sc.begin(); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return sc, nil
}

func (sc *scene) begin() error {
	if err := errors.Join(sc.s.Write(sc.policy), sc.pinOthers()); err != nil {
		return err
	}
	for _, mode := range []string{"clsact", "tcx"} {
		for _, kind := range []string{"watched", "talking"} {
			p, err := sc.s.Start(kind+"-"+mode, map[string]string{"app": "a", "by": mode}, map[string]any{"attachMode": mode})
			if err != nil {
				return err
			}
			if kind == "watched" {
				sc.watched = append(sc.watched, p)
			} else {
				sc.talking = append(sc.talking, p)
			}
		}
	}
	sc.watch = stage.NewWatch(5*time.Millisecond, sc.watched...)
	sc.talk = sc.s.NewTalk(5*time.Millisecond, sc.talking...)
	return sc.talk.Goes(patience)
}

// pinOthers pins maps of others: in the root of the bpffs and in a folder.
func (sc *scene) pinOthers() error {
	dir := filepath.Join(sc.s.Node.Bpffs, "globals")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, path := range []string{filepath.Join(sc.s.Node.Bpffs, "theirs"), filepath.Join(dir, "slots")} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			return err
		}
		err = errors.Join(pins.PinAtomic(m, path), m.Close())
		if err != nil {
			return err
		}
		if sc.others[path], err = os.Stat(path); err != nil {
			return err
		}
	}
	return nil
}

// othersStay requires that the pins of others are what they were.
func (sc *scene) othersStay() error {
	for path, was := range sc.others {
		now, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("pin of others: %w", err)
		}
		if !os.SameFile(was, now) {
			return fmt.Errorf("pin of others %s names another object", path)
		}
	}
	return nil
}

// restart has another build's latchd take over.
func (sc *scene) restart(ctx context.Context, b *harness.Binaries) error {
	if err := sc.s.Node.StopLatchd(); err != nil {
		return err
	}
	sc.s.Use(b)
	return sc.s.StartLatchd(ctx)
}

// edited puts an edit of the policy in force, on pods by filter and by link, and tells how long that took.
func (sc *scene) edited() (time.Duration, error) {
	sc.policy.Version++
	began := time.Now()
	err := sc.s.Write(sc.policy)
	for _, p := range sc.talking {
		err = errors.Join(err, p.Follows(sc.policy.Version, patience))
	}
	return time.Since(began), err
}

// starts has a pod start by the plugin that is in use, and end.
func (sc *scene) starts(ctx context.Context) error {
	sc.young++
	p, err := sc.s.NewPod(fmt.Sprintf("young%d", sc.young), map[string]string{"app": "a"})
	if err != nil {
		return err
	}
	if err := p.Publish(); err != nil {
		return err
	}
	err = harness.Eventually(ctx, patience, func() error {
		_, err := p.Add()
		return err
	})
	if err == nil {
		err = p.Obeys(patience)
	}
	return errors.Join(err, p.Remove())
}

// end stops the traffic, adds up and takes everything down.
func (sc *scene) end(f *Figures) error {
	f.Verdicts = sc.watch.Stop()
	f.Answers, f.LostAnswers = sc.talk.Stop()
	err := errors.Join(f.Verdicts.Err(), sc.othersStay())
	for _, p := range append(sc.watched, sc.talking...) {
		err = errors.Join(err, p.Obeys(patience), p.Remove())
	}
	return errors.Join(err, sc.s.Delete(sc.policy))
}

// close takes everything down, whatever happened.
func (sc *scene) close(ctx context.Context) error {
	sc.watch.Stop()
	sc.talk.Stop()
	var errs []error
	for path := range sc.others {
		errs = append(errs, os.Remove(path))
	}
	errs = append(errs, os.Remove(filepath.Join(sc.s.Node.Bpffs, "globals")))
	return errors.Join(append(errs, sc.s.Close(ctx))...)
}
