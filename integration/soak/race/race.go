package race

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/integration/soak/stage"
)

// Options say how much is played.
type Options struct {
	Length      time.Duration
	Parallel    int           // pods on their way at the same time, 200
	Identifiers int           // 50
	Apps        int           // policies, 5
	Period      time.Duration // of the changes of each policy
}

// Figures are what a race has done and measured.
type Figures struct {
	Adds, Retried  int64
	Moves          int64 // of labels
	Versions       int
	Looks          int64         // from outside
	AddP50, AddP99 time.Duration // of a successful ADD
	stage.Verdicts               // of pods that stayed
}

const patience = 5 * time.Second

type race struct {
	s *stage.Stage
	o Options

	retried, moves, looks atomic.Int64
	mu                    sync.Mutex
	adds                  []time.Duration
}

// Run plays a race.
func Run(ctx context.Context, so stage.Options, rnd *rand.Rand, o Options) (f Figures, err error) {
	so.Latchd = append(so.Latchd, "--audit-period", "1s")
	s, err := stage.New(ctx, so)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	r := &race{s: s, o: o}
	var policies []stage.Policy
	for i := range o.Apps {
		p := stage.Policy{App: fmt.Sprintf("app%d", i), Peers: 10 << i}
		policies = append(policies, p)
		if err := s.Write(p); err != nil {
			return f, err
		}
	}
	steady, err := r.steady()
	if err != nil {
		return f, err
	}
	watch := stage.NewWatch(5*time.Millisecond, steady...)
	defer watch.Stop()
	var stops []func() (stage.Policy, error)
	for _, p := range policies {
		stops = append(stops, s.Churn(ctx, p, o.Period))
	}
	err = r.hammer(ctx, rnd, steady)
	for i, stop := range stops {
		p, stopErr := stop()
		err = errors.Join(err, stopErr)
		policies[i] = p
		f.Versions += p.Version
	}
	f.Adds, f.Retried, f.Moves, f.Looks = int64(len(r.adds)), r.retried.Load(), r.moves.Load(), r.looks.Load()
	f.AddP50, f.AddP99 = percentile(r.adds, 50), percentile(r.adds, 99)
	if err != nil {
		return f, err
	}
	err = s.Whole(ctx, len(steady), 20*time.Second)
	f.Verdicts = watch.Stop()
	err = errors.Join(err, f.Verdicts.Err())
	for _, p := range steady {
		err = errors.Join(err, p.Follows(versionOf(policies, p.Labels["app"]), patience), p.Remove())
	}
	for _, p := range policies {
		err = errors.Join(err, s.Delete(p))
	}
	return f, err
}

func versionOf(policies []stage.Policy, app string) int {
	for _, p := range policies {
		if p.App == app {
			return p.Version
		}
	}
	return 0
}

// labels are those of one of the identifiers.
func (r *race) labels(n int) map[string]string {
	n %= r.o.Identifiers
	return map[string]string{"app": fmt.Sprintf("app%d", n%r.o.Apps), "n": fmt.Sprint(n)}
}

// steady starts one pod for each policy, which stays.
func (r *race) steady() (pods []*stage.Pod, err error) {
	for i := range r.o.Apps {
		p, err := r.s.Start(fmt.Sprintf("steady%d", i), r.labels(i), nil)
		if err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	return pods, nil
}

// hammer starts and ends pods, moves labels and looks, until the time is up or something is wrong.
func (r *race) hammer(ctx context.Context, rnd *rand.Rand, steady []*stage.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Length)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, r.o.Parallel+2)
	spawn := func(i int, each func(n int) error) {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if errs[i] = each(n); errs[i] != nil {
					cancel()
					return
				}
			}
		})
	}
	for i := range r.o.Parallel {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), uint64(i)))
		spawn(i, func(n int) error { return r.life(rnd, i, n) })
	}
	mover := rand.New(rand.NewPCG(rnd.Uint64(), 1))
	spawn(r.o.Parallel, func(int) error { return r.move(ctx, mover, steady) })
	spawn(r.o.Parallel+1, func(int) error {
		r.looks.Add(1)
		return r.s.Consistent()
	})
	wg.Wait()
	return errors.Join(errs...)
}

// life is that of one pod.
func (r *race) life(rnd *rand.Rand, worker, n int) error {
	p, err := r.s.NewPod(fmt.Sprintf("p%d-%d", worker, n%2), r.labels(rnd.IntN(r.o.Identifiers)))
	if err != nil {
		return err
	}
	if rnd.IntN(4) == 0 { // an object that is out of date comes first
		if err := p.PublishAs(r.labels(rnd.IntN(r.o.Identifiers))); err != nil {
			return err
		}
	}
	if err := p.Publish(); err != nil {
		return err
	}
	if err := r.add(p); err != nil {
		return errors.Join(err, p.Remove())
	}
	// Promise 1: what was sent by now is judged.
	if err := p.Obeys(patience); err != nil {
		return err
	}
	if rnd.IntN(3) == 0 {
		p.Labels = r.labels(rnd.IntN(r.o.Identifiers))
		r.moves.Add(1)
		if err := p.Publish(); err != nil {
			return err
		}
		if err := p.Obeys(patience); err != nil {
			return fmt.Errorf("moved: %w", err)
		}
	}
	if rnd.IntN(10) == 0 { // no DEL
		return errors.Join(p.Drop(), p.Withdraw())
	}
	if rnd.IntN(2) == 0 { // the object goes first
		err = p.Withdraw()
	}
	return errors.Join(err, p.Remove())
}

func (r *race) add(p *stage.Pod) error {
	for range 30 {
		took, err := p.Add()
		switch {
		case err == nil:
			r.mu.Lock()
			r.adds = append(r.adds, took)
			r.mu.Unlock()
			return nil
		case !stage.Retryable(err):
			return err
		}
		r.retried.Add(1)
	}
	return fmt.Errorf("pod %s was told to try again 30 times", p.Name)
}

// move gives a pod that stays other labels of the same policy: it moves to another identifier.
func (r *race) move(ctx context.Context, rnd *rand.Rand, steady []*stage.Pod) error {
	i := rnd.IntN(len(steady))
	p := steady[i]
	p.Labels = r.labels(i + r.o.Apps*rnd.IntN(r.o.Identifiers/r.o.Apps))
	r.moves.Add(1)
	if err := p.Publish(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
	return nil
}

func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, len(d)*p/100)]
}
