package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/state"
)

// Pauses is what a play of a stopped latchd has done.
type Pauses struct {
	Stops, Started, Refused int // of latchd; of ADDs meanwhile
	Versions                int
	stage.Verdicts
}

// Pause stops latchd at random instructions, which may hold locks by then, and lets it go on. A pod that is
// started meanwhile is in force or refused, those that run see nothing of it, and afterwards the newest policy is
// in force.
func Pause(ctx context.Context, o stage.Options, rnd *rand.Rand, length time.Duration) (p Pauses, err error) {
	o.Latchd = append(o.Latchd, "--audit-period", "1s")
	o.Entry = map[string]any{"lockTimeout": "200ms"}
	policy := stage.Policy{App: app, Peers: 60}
	s, steady, watch, err := begin(ctx, o, policy)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	defer watch.Stop()
	stopChurn := s.Churn(ctx, policy, 25*time.Millisecond)
	for began := time.Now(); err == nil && ctx.Err() == nil && (p.Stops == 0 || time.Since(began) < length); p.Stops++ {
		err = p.one(ctx, s, rnd)
	}
	policy, churnErr := stopChurn()
	p.Versions = policy.Version
	if err := errors.Join(err, churnErr); err != nil {
		return p, err
	}
	err = errors.Join(s.Whole(ctx, 1, 15*time.Second), steady.Follows(policy.Version, patience))
	p.Verdicts = watch.Stop()
	return p, errors.Join(err, p.Verdicts.Err(), steady.Remove(), s.Delete(policy))
}

// one starts a pod while latchd is stopped.
func (p *Pauses) one(ctx context.Context, s *stage.Stage, rnd *rand.Rand) error {
	// Of several identifiers, so that latchd is seldom stopped at this one.
	pod, err := s.NewPod("brief", map[string]string{"app": app, "n": fmt.Sprint(rnd.IntN(8))})
	if err != nil {
		return err
	}
	if err := errors.Join(pod.Publish(), published(ctx, s, pod)); err != nil {
		return err
	}
	pause(ctx, time.Duration(rnd.Int64N(int64(30*time.Millisecond))))
	latchd, err := os.FindProcess(s.Node.Latchd.PID())
	if err != nil {
		return err
	}
	if err := latchd.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	_, addErr := pod.Add()
	switch {
	case addErr == nil:
		p.Started++
		err = pod.Obeys(patience)
	case stage.Refused(addErr):
		p.Refused++
	default:
		err = addErr
	}
	err = errors.Join(err, pod.Closed(), latchd.Signal(unix.SIGCONT))
	if err != nil {
		return fmt.Errorf("latchd stopped: %w", err)
	}
	_, err = add(pod)
	return errors.Join(err, pod.Obeys(patience), pod.Remove())
}

// Calls are the calls of bpf(2) that latchd makes to write rules, and to look.
var Calls = []Call{
	{"map create", 0}, {"map lookup", 1}, {"map update", 2}, {"map delete", 3}, {"obj pin", 6}, {"obj get", 7}, {"map lookup by id", 14}, {"info", 15},
	{"batch update", 26},
}

// Call is a command of bpf(2).
type Call struct {
	Name string
	cmd  uint32
}

// StarvedLatchd is what came of a latchd whose calls failed.
type StarvedLatchd struct {
	Runs, Ended, Behind, InForce int // runs; latchd ended by itself; the policy did not come into force; it did
}

// StarveLatchd has a latchd take over a node with one call of the kernel failing. The pod that runs is judged by
// the old policy or the new one, by the old one only if latchd says so or ends; a latchd that is not starved puts
// all right.
func StarveLatchd(ctx context.Context, o stage.Options, calls []Call, errnos ...unix.Errno) (st StarvedLatchd, err error) {
	policy := stage.Policy{App: app, Peers: 20}
	s, pod, watch, err := begin(ctx, o, policy)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	defer watch.Stop()
	for _, call := range calls {
		for _, errno := range errnos {
			policy.Version++
			policy.Peers = 20 + policy.Version%2*400 // by turns too many for the slot
			if err := st.one(ctx, s, o.Binaries, call.cmd, errno, policy, pod); err != nil {
				return st, fmt.Errorf("%s fails with %w: %w", call.Name, errno, err)
			}
		}
	}
	return st, errors.Join(s.Whole(ctx, 1, 15*time.Second), watch.Stop().Err(), pod.Obeys(patience), pod.Remove(), s.Delete(policy))
}

func (st *StarvedLatchd) one(ctx context.Context, s *stage.Stage, whole *harness.Binaries, cmd uint32, errno unix.Errno, policy stage.Policy, pod *stage.Pod) error {
	starved, err := starvedBinaries(s, whole, fmt.Sprintf("bpf=%d:%d", cmd, errno))
	if err != nil {
		return err
	}
	s.Node.Use(starved)
	err = errors.Join(s.Node.StopLatchd(), s.Write(policy), s.Node.StartLatchd())
	s.Node.Use(whole)
	if err != nil {
		return err
	}
	began := time.Now()
	st.Runs++
	switch followErr := pod.Follows(policy.Version, 2*time.Second); {
	case followErr == nil:
		st.InForce++
	case s.Node.Latchd.Running() != nil:
		st.Ended++
	default:
		st.Behind++
		err = pod.Follows(policy.Version-1, patience)
		if status, readErr := state.New(s.Node.StateDir).ReadStatus(); readErr != nil || status.UpdatedAt.After(began) && status.Ready {
			err = errors.Join(err, fmt.Errorf("the policy is not in force, and latchd says %+v", status), readErr)
		}
	}
	if s.Node.Latchd.Running() == nil {
		err = errors.Join(err, s.Node.KillLatchd())
	}
	s.Node.Latchd = nil
	err = errors.Join(err, pod.Obeys(patience), s.StartLatchd(ctx), pod.Follows(policy.Version, 10*time.Second))
	return err
}

// starvedBinaries are those of a build with a latchd that starves itself.
func starvedBinaries(s *stage.Stage, whole *harness.Binaries, starve string) (*harness.Binaries, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.Node.Dir, "starved")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s %s \"$@\"\n", starveEnv, starve, self, whole.Latchd())
	return &harness.Binaries{Dir: dir}, os.WriteFile(filepath.Join(dir, "latchd"), []byte(script), 0o700)
}
