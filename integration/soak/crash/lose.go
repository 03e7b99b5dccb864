package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/stage"
)

// Loss is something that a node loses.
type Loss struct {
	Name string
	lose func(*stage.Stage) error
	// held says that it is about a pod with links of tcx. They are as safe as their pins while latchd, which
	// holds them open, does not run.
	held bool
	// blind says that nobody knows any more who runs: those pods are closed.
	blind bool
}

// Losses lists them.
func Losses() []Loss {
	empty := func(s *stage.Stage) error {
		entries, err := os.ReadDir(s.Node.StateDir)
		errs := []error{err}
		for _, e := range entries {
			errs = append(errs, os.RemoveAll(filepath.Join(s.Node.StateDir, e.Name())))
		}
		return errors.Join(errs...)
	}
	return []Loss{
		{Name: "state folder emptied", lose: empty, blind: true},
		{Name: "bpffs emptied", lose: func(s *stage.Stage) error { return os.RemoveAll(filepath.Join(s.Node.Bpffs, "latch")) }},
		{Name: "bpffs of a pod by tcx emptied", held: true, lose: func(s *stage.Stage) error { return os.RemoveAll(filepath.Join(s.Node.Bpffs, "latch")) }},
		{Name: "bpffs unmounted", lose: func(s *stage.Stage) error { return unix.Unmount(s.Node.Bpffs, unix.MNT_DETACH) }},
		{Name: "locks emptied", lose: removeLocks},
	}
}

// Plays tells whether it can be played with latchd running, or not running.
func (l Loss) Plays(running bool) bool { return running || !l.held }

// Lose takes something away while latchd runs, or while it does not and a pod is added, and requires
// that the pods that ran are judged as before, that the one that came is in force or refused, and that
// everything is whole when latchd has been there.
func Lose(ctx context.Context, o stage.Options, l Loss, running bool) (err error) {
	o.Latchd = append(o.Latchd, "--audit-period", "500ms")
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	policy := stage.Policy{App: app, Peers: 20}
	if err := s.Write(policy); err != nil {
		return err
	}
	var entry map[string]any
	if l.held {
		entry = map[string]any{"attachMode": "tcx"}
	}
	old, err := s.Start("old", labels, entry)
	if err != nil {
		return err
	}
	young, err := s.NewPod("young", labels)
	if err != nil {
		return err
	}
	if err := errors.Join(young.Publish(), s.Whole(ctx, 1, 5*time.Second)); err != nil {
		return err
	}
	time.Sleep(time.Second) // an audit has seen what there is
	watch := stage.NewWatch(3*time.Millisecond, old)
	defer watch.Stop()
	if !running {
		if err := s.Node.StopLatchd(); err != nil {
			return err
		}
	}
	if err := l.lose(s); err != nil {
		return fmt.Errorf("lose: %w", err)
	}
	_, addErr := young.Add()
	if addErr != nil && !stage.Refused(addErr) {
		err = errors.Join(err, addErr)
	}
	if addErr == nil {
		err = errors.Join(err, young.Obeys(patience))
	} else {
		err = errors.Join(err, young.Closed())
	}
	if !running {
		err = errors.Join(err, s.StartLatchd(ctx))
	}
	policy.Version++
	err = errors.Join(err, s.Write(policy), harness.Eventually(ctx, 15*time.Second, func() error {
		_, err := young.Add()
		return err
	}))
	if blind := l.blind && !running; blind {
		// The old pod is nobody's now: closed, until its sandbox is made anew.
		err = errors.Join(err, old.Closed(), slipped(watch.Stop()), old.Remove(), young.Obeys(patience), young.Follows(1, patience), young.Remove())
		return errors.Join(err, s.Delete(policy))
	}
	err = errors.Join(err, s.Whole(ctx, 2, 15*time.Second), watch.Stop().Err())
	for _, p := range []*stage.Pod{old, young} {
		err = errors.Join(err, p.Follows(1, patience), p.Obeys(patience), p.Remove())
	}
	return errors.Join(err, s.Delete(policy))
}

// slipped is what of a watch must not be even of a pod that is closed.
func slipped(v stage.Verdicts) error {
	v.Lost = 0
	return v.Err()
}

// DiskFull fills the file system of the records. Nothing may be said to be in force that is not recorded,
// and everything has to go on when there is room again.
func DiskFull(ctx context.Context, o stage.Options) (err error) {
	o.Idle = true
	o.Latchd = append(o.Latchd, "--audit-period", "500ms")
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	if err := unix.Mount("tmpfs", s.Node.StateDir, "tmpfs", 0, "size=128k"); err != nil {
		return fmt.Errorf("mount a small file system: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(s.Node.StateDir, unix.MNT_DETACH)) }()
	policy := stage.Policy{App: app}
	if err := errors.Join(s.Write(policy), s.StartLatchd(ctx)); err != nil {
		return err
	}
	old, err := s.Start("old", labels, nil)
	if err != nil {
		return err
	}
	watch := stage.NewWatch(3*time.Millisecond, old)
	defer watch.Stop()
	young, err := s.NewPod("young", labels)
	if err != nil {
		return err
	}
	if err := errors.Join(young.Publish(), s.Whole(ctx, 1, 5*time.Second)); err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond)
	filler := filepath.Join(s.Node.StateDir, "filler")
	if err := fill(filler); err != nil {
		return err
	}
	_, addErr := young.Add()
	switch {
	case addErr == nil:
		err = errors.New("ADD succeeded without room for its record")
	case !stage.Refused(addErr):
		err = addErr
	}
	policy.Version = 3
	err = errors.Join(err, young.Closed(), s.Write(policy))
	time.Sleep(2 * time.Second)
	err = errors.Join(err, s.Node.Latchd.Running(), os.Remove(filler))
	_, addErr = add(young)
	err = errors.Join(err, addErr, s.Whole(ctx, 2, 15*time.Second), watch.Stop().Err())
	for _, p := range []*stage.Pod{old, young} {
		err = errors.Join(err, p.Follows(3, patience), p.Remove())
	}
	err = errors.Join(err, s.Delete(policy), s.Node.StopLatchd())
	return err
}

func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for size := 4096; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			return err
		}
	}
	return nil
}
