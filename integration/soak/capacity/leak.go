package capacity

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/integration/soak/stage"
)

// Leaks starts and ends pods, one in ten without DEL, for a length of time and at least so many, and compares
// what is held after with what was before.
func Leaks(ctx context.Context, o stage.Options, length time.Duration, least int, tell Figure) (err error) {
	o.Latchd = append(o.Latchd, "--audit-period", "1s")
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	policy := stage.Policy{App: "a", Peers: 20}
	if err := s.Write(policy); err != nil {
		return err
	}
	const identifiers = 20
	if err := s.Node.WriteManifest("expected.json", expectedPods(s, identifiers, "a")); err != nil {
		return err
	}
	if err := prepared(ctx, s, identifiers, 20*time.Second); err != nil {
		return err
	}
	round := func(until time.Time, least int) (n int, err error) {
		var sandboxes atomic.Int64
		var wg sync.WaitGroup
		errs := make([]error, leakWorkers)
		for i := range leakWorkers {
			wg.Go(func() {
				for errs[i] == nil && ctx.Err() == nil {
					n := sandboxes.Add(1)
					if !time.Now().Before(until) && (n-1)*lives >= int64(least) {
						return
					}
					errs[i] = comeAndGo(s, int(n), identifiers)
				}
			})
		}
		wg.Wait()
		return int(sandboxes.Load()-leakWorkers) * lives, errors.Join(errs...)
	}
	if _, err := round(time.Now(), 50); err != nil { // caches are as full as they get
		return err
	}
	before, err := settled(ctx, s)
	if err != nil {
		return err
	}
	n, err := round(time.Now().Add(length), least)
	if err != nil {
		return err
	}
	after, err := settled(ctx, s)
	if err != nil {
		return err
	}
	tell(fmt.Sprintf("%d ADD and DEL, one in ten without DEL", n), "before: %v; after: %v", before, after)
	switch {
	case after.Pins != before.Pins || after.Records > before.Records || after.Locks > before.Locks || after.Descriptors > before.Descriptors+4:
		err = fmt.Errorf("leaked: before %v, after %v", before, after)
	case after.RSS > before.RSS+20<<20:
		err = fmt.Errorf("latchd grew from %d to %d MB", before.RSS>>20, after.RSS>>20)
	}
	return errors.Join(err, s.Node.RemoveManifest("expected.json"), s.Delete(policy))
}

// leakWorkers is how many sandboxes there are at the same time, lives how often each is added: the last time, in
// three sandboxes of ten, it goes without DEL.
const (
	leakWorkers = 8
	lives       = 3
)

// comeAndGo is the life of a sandbox.
func comeAndGo(s *stage.Stage, n, identifiers int) error {
	p, err := newExpected(s, n, identifiers)
	if err != nil {
		return err
	}
	first := p.Container
	for life := range lives {
		p.Container = fmt.Sprintf("%s-%d", first, life)
		if _, err := addPatiently(p); err != nil {
			return err
		}
		if life == lives-1 && n%10 < lives {
			break
		}
		if _, err := p.Del(); err != nil {
			return err
		}
	}
	return p.Drop()
}

// Slots asks for more rule sets than the node has slots. Those that fit are prepared, latchd says which are
// not, a running pod sees nothing of it, and when some go the rest comes in.
func Slots(ctx context.Context, o stage.Options, slots int, tell Figure) (err error) {
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	policy := stage.Policy{App: "a"}
	if err := s.Write(policy); err != nil {
		return err
	}
	pod, err := s.Start("steady", map[string]string{"app": "a", "steady": "yes"}, nil)
	if err != nil {
		return err
	}
	watch := stage.NewWatch(5*time.Millisecond, pod)
	defer watch.Stop()
	began := time.Now()
	if err := s.Node.WriteManifest("expected.json", expectedPods(s, slots+50, "a")); err != nil {
		return err
	}
	said, err := awaitProblem(ctx, s, "no free slot")
	if err != nil {
		return err
	}
	u, err := usage(s)
	if err != nil {
		return err
	}
	tell(fmt.Sprintf("%d identifiers for %d slots", slots+50, slots), "full after %v, latchd says %q and holds %d MB", time.Since(began).Round(time.Second), said, u.RSS>>20)
	if err := s.Node.WriteManifest("expected.json", expectedPods(s, slots/2, "a")); err != nil {
		return err
	}
	policy.Version = 5
	err = errors.Join(s.Write(policy), pod.Follows(5, 2*time.Minute), s.Node.WaitReady(ctx, 2*time.Minute), watch.Stop().Err(), pod.Remove())
	return errors.Join(err, s.Node.RemoveManifest("expected.json"), s.Delete(policy))
}

// settled is what is held when the audit has removed what no DEL came for.
func settled(ctx context.Context, s *stage.Stage) (Usage, error) {
	if err := s.Whole(ctx, 0, 30*time.Second); err != nil {
		return Usage{}, err
	}
	u, err := usage(s)
	for range 20 { // an audit that is at work has more open
		time.Sleep(150 * time.Millisecond)
		now, nowErr := usage(s)
		now.Descriptors = min(now.Descriptors, u.Descriptors)
		u, err = now, errors.Join(err, nowErr)
	}
	return u, err
}
