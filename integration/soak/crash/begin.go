package crash

import (
	"context"
	"errors"
	"time"

	"github.com/latch-cni/latch/integration/soak/stage"
)

// app selects the pods of a play.
const app = "a"

var labels = map[string]string{"app": app}

// begin makes a node with a policy and a pod that is in force, which everybody sends to. Close the stage.
func begin(ctx context.Context, o stage.Options, policy stage.Policy) (*stage.Stage, *stage.Pod, *stage.Watch, error) {
	s, err := stage.New(ctx, o)
	if err != nil {
		return nil, nil, nil, err
	}
	err = s.Write(policy)
	if err == nil {
		var pod *stage.Pod
		if pod, err = s.Start("steady", labels, nil); err == nil {
			return s, pod, stage.NewWatch(4*time.Millisecond, pod), nil
		}
	}
	return nil, nil, nil, errors.Join(err, s.Close(ctx))
}
