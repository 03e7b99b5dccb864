package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

const (
	discovery         = "discovery" // name of the question for custom kinds in progress
	discoveryPatience = 10 * time.Second

	// An API server that is starting denies custom kinds before it has found them.
	confirmAbsence = 3 * time.Second
	confirmPause   = 500 * time.Millisecond
)

// discover looks for the custom kinds until all are there. No answer is not the answer that they are
// absent.
func (s *Source) discover(ctx context.Context) {
	absent, failed := wait.Backoff{Duration: time.Second, Factor: 1.5, Jitter: 0.2, Steps: 12, Cap: 30 * time.Second}, backoff
	for ctx.Err() == nil {
		served, err := s.served(ctx)
		if ctx.Err() != nil {
			return
		}
		s.note(discovery, err)
		var pause time.Duration
		if err != nil {
			pause = failed.Step()
		} else {
			failed = backoff
			all, certain := s.progress.found(served)
			if all {
				return
			}
			s.settle()
			if pause = confirmPause; certain {
				pause = absent.Step()
			}
		}
		sleep(ctx, pause)
	}
}

// served asks which custom kinds the API server has.
func (s *Source) served(ctx context.Context) (map[string]bool, error) {
	bounded, cancel := context.WithTimeout(ctx, discoveryPatience)
	defer cancel()
	gv := v1alpha1.GroupVersion
	answer := s.clients[gv].Get().AbsPath("/apis", gv.Group, gv.Version).Do(bounded)
	if apierrors.IsNotFound(answer.Error()) {
		return nil, nil
	}
	raw, err := answer.Raw()
	if err := cmp.Or(answer.Error(), err); err != nil {
		return nil, fmt.Errorf("ask for the kinds of %s: %w", gv, err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("read the kinds of %s: %w", gv, err)
	}
	served := map[string]bool{}
	for _, r := range list.APIResources {
		served[r.Name] = true
	}
	return served, nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
