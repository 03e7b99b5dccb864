package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/soak/stage"
)

// Kills is what a play of kills has done.
type Kills struct {
	Plugin   int // runs that were killed before they had ended
	Survived int // runs that had ended before
	Latchd   int
	Versions int // of the policy
	stage.Verdicts

	plugin, survived, latchd atomic.Int64
}

const patience = 5 * time.Second

// Kill ends the plugin, and latchd, at random instructions for a length of time, while a policy changes. A
// pod whose ADD was killed has to be closed on every side on which our program is; its next ADD has to
// succeed. Two pods that are in force all the while must see nothing of it.
func Kill(ctx context.Context, o stage.Options, rnd *rand.Rand, length time.Duration) (k *Kills, err error) {
	k = &Kills{}
	o.Latchd = append(o.Latchd, "--audit-period", "1s")
	s, err := stage.New(ctx, o)
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	policy := stage.Policy{App: "a", Peers: 60}
	if err := s.Write(policy); err != nil {
		return k, err
	}
	var steady []*stage.Pod
	for i := range 2 {
		p, err := s.Start(fmt.Sprintf("steady%d", i), map[string]string{"app": "a", "n": fmt.Sprint(i)}, nil)
		if err != nil {
			return k, err
		}
		steady = append(steady, p)
	}
	watch := stage.NewWatch(4*time.Millisecond, steady...)
	defer watch.Stop()
	stopChurn := s.Churn(ctx, policy, 60*time.Millisecond)
	err = k.round(ctx, s, rnd, length)
	policy, churnErr := stopChurn()
	k.Versions = policy.Version
	if err := errors.Join(err, churnErr); err != nil {
		return k, err
	}
	if s.Node.Latchd == nil {
		if err := s.StartLatchd(ctx); err != nil {
			return k, err
		}
	}
	k.Verdicts = watch.Stop()
	err = errors.Join(k.Verdicts.Err(), s.Whole(ctx, len(steady), 15*time.Second))
	for _, p := range steady {
		err = errors.Join(err, p.Follows(policy.Version, patience), p.Remove())
	}
	return k, errors.Join(err, s.Delete(policy))
}

// workers are the pods that are started and killed at the same time.
const workers = 8

// round kills until the time is up.
func (k *Kills) round(ctx context.Context, s *stage.Stage, rnd *rand.Rand, length time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, workers+1)
	for i := range workers {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 0))
		wg.Go(func() {
			for n := 0; ctx.Err() == nil && errs[i] == nil; n++ {
				if errs[i] = k.one(s, rnd, i, n); errs[i] != nil {
					cancel()
				}
			}
		})
	}
	for ctx.Err() == nil {
		pause(ctx, 500*time.Millisecond+time.Duration(rnd.Int64N(int64(3*time.Second))))
		if errs[workers] = errors.Join(s.Node.KillLatchd(), s.Node.StartLatchd()); errs[workers] != nil {
			cancel()
		}
		k.latchd.Add(1)
	}
	wg.Wait()
	k.Plugin, k.Survived, k.Latchd = int(k.plugin.Load()), int(k.survived.Load()), int(k.latchd.Load())
	return errors.Join(errs...)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// longest is what an ADD takes that need not wait for anything.
const longest = 25 * time.Millisecond

// one is the life of a pod whose ADD, and perhaps DEL, is killed.
func (k *Kills) one(s *stage.Stage, rnd *rand.Rand, worker, i int) error {
	p, err := s.NewPod(fmt.Sprintf("brief%d-%d", worker, i%3), map[string]string{"app": "a", "n": fmt.Sprint(rnd.IntN(4))})
	if err != nil {
		return err
	}
	if err := p.Publish(); err != nil {
		return err
	}
	for range 1 + rnd.IntN(4) {
		if err := k.killed(p, s, "ADD", time.Duration(rnd.Int64N(int64(longest)))); err != nil {
			return err
		}
		if err := p.Closed(); err != nil {
			return fmt.Errorf("killed in ADD: %w", err)
		}
		if rnd.IntN(3) == 0 {
			if err := k.killed(p, s, "DEL", time.Duration(rnd.Int64N(int64(longest)))); err != nil {
				return err
			}
		}
	}
	_, err = add(p)
	if err == nil {
		err = p.Obeys(patience)
	}
	if rnd.IntN(2) == 0 {
		err = errors.Join(err, k.killed(p, s, "DEL", time.Duration(rnd.Int64N(int64(longest)))))
	}
	return errors.Join(err, p.Remove())
}

// add runs ADD as a runtime does, again when it is told so.
func add(p *stage.Pod) (took time.Duration, err error) {
	for range 20 {
		if took, err = p.Add(); !stage.Retryable(err) {
			return took, err
		}
	}
	return took, err
}

func (k *Kills) killed(p *stage.Pod, s *stage.Stage, verb string, after time.Duration) error {
	cmd, _ := p.Command(verb)
	if err := s.OnNode(cmd.Start); err != nil {
		return err
	}
	time.Sleep(after)
	err := cmd.Process.Signal(unix.SIGKILL)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = cmd.Wait()
	if cmd.ProcessState.ExitCode() < 0 {
		k.plugin.Add(1)
	} else {
		k.survived.Add(1)
	}
	return nil
}
