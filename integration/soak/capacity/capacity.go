package capacity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/state"
)

// Figure is told what was measured.
type Figure func(what, format string, args ...any)

// What latchd may hold while a policy of many peers each way is replaced, and when it is in force.
const (
	baseMemory  = 60 << 20
	peakPerPeer = 2500
	restPerPeer = 900
)

// Peers has a running pod's policy grow to a number of peers and change, and the pod go.
func Peers(ctx context.Context, o stage.Options, peers int, tell Figure) (err error) {
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	policy := stage.Policy{App: "a", Peers: 10}
	if err := s.Write(policy); err != nil {
		return err
	}
	pod, err := s.Start("pod", map[string]string{"app": "a"}, nil)
	if err != nil {
		return err
	}
	watch := stage.NewWatch(3*time.Millisecond, pod)
	defer watch.Stop()
	for _, step := range []string{"grows", "changes three quarters of them", "shrinks"} {
		policy.Version, policy.Peers = policy.Version+1, peers
		if step == "shrinks" {
			policy.Peers = 10
			if err := rests(ctx, s, peers, tell); err != nil {
				return err
			}
		}
		if err := changes(s, policy, pod, peers, step, tell); err != nil {
			return err
		}
	}
	seen := watch.Stop().Err()
	took, err := pod.Del()
	tell(fmt.Sprintf("%d peers each way: DEL", peers), "%v", took.Round(time.Millisecond))
	return errors.Join(err, seen, pod.Remove(), s.Delete(policy))
}

// changes puts a policy in force and tells what it took.
func changes(s *stage.Stage, policy stage.Policy, pod *stage.Pod, peers int, step string, tell Figure) error {
	before, err := measure(s)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.Write(policy); err != nil {
		return err
	}
	if err := pod.Follows(policy.Version, 2*time.Minute); err != nil {
		return fmt.Errorf("%d peers: %s: %w", peers, step, err)
	}
	took := time.Since(began)
	after, err := usage(s)
	if err != nil {
		return err
	}
	tell(fmt.Sprintf("%d peers each way: policy %s", peers, step), "in force after %v, latchd used %v of processor, held up to %d MB",
		took.Round(time.Millisecond), (after.CPU - before.CPU).Round(time.Millisecond), after.Peak>>20)
	if after.Peak > baseMemory+int64(peers)*peakPerPeer {
		return fmt.Errorf("latchd took %d MB for a policy of %d peers", after.Peak>>20, peers)
	}
	return nil
}

// rests tells how much memory latchd holds when it has nothing to do.
func rests(ctx context.Context, s *stage.Stage, peers int, tell Figure) error {
	rest, err := resting(ctx, s)
	if err != nil {
		return err
	}
	tell(fmt.Sprintf("%d peers each way: at rest", peers), "latchd holds %d MB", rest>>20)
	if rest > baseMemory+int64(peers)*restPerPeer {
		return fmt.Errorf("latchd holds %d MB for a policy of %d peers", rest>>20, peers)
	}
	return nil
}

// Pods has many identifiers prepared, starts pods, changes the policy of all of them, and then the policy of
// each at a rate.
func Pods(ctx context.Context, o stage.Options, pods, identifiers int, r Rate, tell Figure) (err error) {
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	policy := stage.Policy{App: "a", Peers: 20}
	if err := s.Write(policy); err != nil {
		return err
	}
	expected := expectedPods(s, identifiers, policy.App)
	began := time.Now()
	if err := s.Node.WriteManifest("expected.json", expected); err != nil {
		return err
	}
	if err := prepared(ctx, s, identifiers, time.Minute); err != nil {
		return err
	}
	u, err := usage(s)
	if err != nil {
		return err
	}
	tell(fmt.Sprintf("%d identifiers", identifiers), "prepared after %v, %v of processor, latchd %v", time.Since(began).Round(time.Millisecond), u.CPU, u)
	began = time.Now()
	started, adds, err := start(ctx, s, pods, identifiers)
	if err != nil {
		return err
	}
	u, err = usage(s)
	if err != nil {
		return err
	}
	slices.Sort(adds)
	tell(fmt.Sprintf("%d pods", pods), "started in %v, ADD p50 %v, p99 %v, latchd %v", time.Since(began).Round(time.Millisecond),
		percentile(adds, 50), percentile(adds, 99), u)
	for _, v := range []int{1, 2} {
		policy.Version = v
		cpu := u.CPU
		began = time.Now()
		if err := s.Write(policy); err != nil {
			return err
		}
		if err := changed(ctx, s, identifiers, began, time.Minute); err != nil {
			return err
		}
		took := time.Since(began)
		if u, err = usage(s); err != nil {
			return err
		}
		tell(fmt.Sprintf("change of a policy of %d identifiers", identifiers), "all in force after %v: %.0f updates a second, %v of processor",
			took.Round(time.Millisecond), float64(identifiers)/took.Seconds(), (u.CPU - cpu).Round(time.Millisecond))
	}
	for _, p := range started {
		err = errors.Join(err, p.Follows(2, 5*time.Second))
		if err != nil {
			break
		}
	}
	if err == nil {
		err = rate(ctx, s, started, policy.App, identifiers, r, tell)
	}
	return errors.Join(err, endAll(started), s.Node.RemoveManifest("expected.json"), s.Delete(policy))
}

// endAll ends pods, a few at a time.
func endAll(pods []*stage.Pod) error {
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			for n := i; n < len(pods); n += len(errs) {
				_, err := pods[n].Del()
				errs[i] = errors.Join(errs[i], err, pods[n].Drop())
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// expectedPods are the Pod objects of a number of identifiers, one each.
func expectedPods(s *stage.Stage, identifiers int, app string) []byte {
	var all strings.Builder
	for i := range identifiers {
		p := harness.Pod{Namespace: stage.Namespace, Name: podName(i), UID: fmt.Sprintf("expected-%d", i)}
		all.Write(s.Node.PodManifest(p, labelsOf(app, i)))
	}
	return []byte(all.String())
}

// labelsOf are those of one identifier.
func labelsOf(app string, i int) map[string]string {
	return map[string]string{"app": app, "n": fmt.Sprint(i)}
}

func podName(i int) string { return fmt.Sprintf("pod%d", i) }

// prepared waits until so many identifiers are recorded.
func prepared(ctx context.Context, s *stage.Stage, n int, patience time.Duration) error {
	return harness.Eventually(ctx, patience, func() error {
		recs, err := state.New(s.Node.StateDir).ListIdentifiers()
		if err == nil && len(recs) < n {
			err = fmt.Errorf("%d of %d identifiers are prepared", len(recs), n)
		}
		return err
	})
}

// changed waits until the rules of so many identifiers have been written since.
func changed(ctx context.Context, s *stage.Stage, n int, since time.Time, patience time.Duration) error {
	return harness.Eventually(ctx, patience, func() error {
		recs, err := state.New(s.Node.StateDir).ListIdentifiers()
		done := 0
		for _, r := range recs {
			if r.Create.Since.After(since) && r.Running.Hash == r.Create.Hash {
				done++
			}
		}
		if err == nil && done < n {
			err = fmt.Errorf("%d of %d identifiers follow", done, n)
		}
		return err
	})
}

// start runs ADD for pods, a few at a time.
func start(ctx context.Context, s *stage.Stage, pods, identifiers int) (started []*stage.Pod, adds []time.Duration, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	work := make(chan int)
	for range 4 {
		wg.Go(func() {
			for i := range work {
				p, took, addErr := startOne(s, i, identifiers)
				mu.Lock()
				err = errors.Join(err, addErr)
				if addErr == nil {
					started, adds = append(started, p), append(adds, took)
				}
				mu.Unlock()
			}
		})
	}
	for i := range pods {
		if ctx.Err() != nil {
			break
		}
		work <- i
	}
	close(work)
	wg.Wait()
	return started, adds, errors.Join(err, ctx.Err())
}

func startOne(s *stage.Stage, i, identifiers int) (*stage.Pod, time.Duration, error) {
	p, err := newExpected(s, i, identifiers)
	if err != nil {
		return nil, 0, err
	}
	took, err := addPatiently(p)
	return p, took, err
}

// newExpected makes the sandbox of one of the expected pods.
func newExpected(s *stage.Stage, i, identifiers int) (*stage.Pod, error) {
	p, err := s.NewPod(podName(i%identifiers), nil)
	if err != nil {
		return nil, err
	}
	p.UID = fmt.Sprintf("expected-%d", i%identifiers)
	return p, nil
}

// addPatiently runs ADD as a runtime does, again when it is told so.
func addPatiently(p *stage.Pod) (took time.Duration, err error) {
	for range 20 {
		if took, err = p.Add(); !stage.Retryable(err) {
			break
		}
	}
	return took, err
}
