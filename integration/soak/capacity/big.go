package capacity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/state"
)

// TooBig has a running pod's policy grow beyond what a node takes: the old one stays in force, latchd says
// which policy it is, and when it is smaller again it comes into force. A pod that starts meanwhile is refused,
// or judged by the old one.
func TooBig(ctx context.Context, o stage.Options, tell Figure) (err error) {
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	policy := stage.Policy{App: "a", Version: 1}
	if err := s.Write(policy); err != nil {
		return err
	}
	labels := map[string]string{"app": "a"}
	pod, err := s.Start("pod", labels, nil)
	if err != nil {
		return err
	}
	watch := stage.NewWatch(3*time.Millisecond, pod)
	defer watch.Stop()
	policy.Version, policy.Multiplied = 2, 2000
	began := time.Now()
	if err := s.Write(policy); err != nil {
		return err
	}
	said, err := awaitProblem(ctx, s, "too big")
	if err != nil {
		return err
	}
	u, err := usage(s)
	if err != nil {
		return err
	}
	tell("policy too big", "refused after %v, latchd held up to %d MB and says %q", time.Since(began).Round(time.Millisecond), u.Peak>>20, said)
	if !strings.Contains(said, stage.Namespace+"/a") {
		err = fmt.Errorf("latchd does not name the policy that is too big: %q", said)
	}
	err = errors.Join(err, pod.Follows(1, 5*time.Second))
	young, newErr := s.NewPod("young", labels)
	if newErr != nil {
		return errors.Join(err, newErr)
	}
	young.Entry = map[string]any{"policyWait": "1s"}
	err = errors.Join(err, young.Publish())
	switch _, addErr := young.Add(); {
	case addErr == nil:
		err = errors.Join(err, young.Obeys(5*time.Second), young.Follows(1, 5*time.Second))
	case !stage.Refused(addErr):
		err = errors.Join(err, addErr)
	}
	err = errors.Join(err, young.Closed())
	policy.Version, policy.Multiplied = 3, 0
	err = errors.Join(err, s.Write(policy), pod.Follows(3, 10*time.Second), s.Node.WaitReady(ctx, 10*time.Second), watch.Stop().Err())
	return errors.Join(err, young.Remove(), pod.Remove(), s.Delete(policy))
}

// awaitProblem waits until latchd reports a problem with these words, and returns what it says.
func awaitProblem(ctx context.Context, s *stage.Stage, words string) (said string, err error) {
	err = harness.Eventually(ctx, 3*time.Minute, func() error {
		st, err := state.New(s.Node.StateDir).ReadStatus()
		if err != nil {
			return err
		}
		for _, p := range st.Problems {
			if strings.Contains(p.Message, words) {
				said = p.Message
				return nil
			}
		}
		return fmt.Errorf("latchd does not report %q", words)
	})
	return said, err
}
