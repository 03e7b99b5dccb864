package stage

import (
	"errors"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// Closed requires that nothing that no policy allows passes on the sides on which our program is: a pod
// that is not in force yet, or not any more, is absent or closed.
func (p *Pod) Closed() error {
	toPod, fromPod, err := p.Attached()
	if err != nil {
		return err
	}
	was := p.seen()
	for range 3 {
		if toPod {
			err = errors.Join(err, p.Receive(Never))
		}
		if fromPod {
			err = errors.Join(err, p.Send(Never))
		}
	}
	time.Sleep(2 * time.Millisecond)
	if now := p.seen(); now.inNever != was.inNever || now.outNever != was.outNever {
		err = errors.Join(err, fmt.Errorf("pod %s: program attached (to the pod %v, from it %v), and %d datagrams came in, %d out, that no policy allows",
			p.Name, toPod, fromPod, now.inNever-was.inNever, now.outNever-was.outNever))
	}
	return err
}

// Retryable tells whether the runtime was told to try again later.
func Retryable(err error) bool {
	refusal := &types.Error{}
	return errors.As(err, &refusal) && refusal.Code == types.ErrTryAgainLater
}

// Refused tells whether the plugin refused in the way that CNI asks for.
func Refused(err error) bool { return errors.As(err, new(*types.Error)) }
