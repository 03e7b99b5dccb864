package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

// served asks which custom kinds the API server has. One that it has in other versions only, as after an upgrade
// of its CRD, is an error: its policies are there, and nobody here can read them.
func (s *Source) served(ctx context.Context) (map[string]bool, error) {
	bounded, cancel := context.WithTimeout(ctx, discoveryPatience)
	defer cancel()
	gv := v1alpha1.GroupVersion
	served, err := s.resources(bounded, gv.Version)
	if err != nil || !slices.ContainsFunc(s.kinds, func(k *kind) bool { return k.custom && !served[k.resource] }) {
		return served, err
	}
	var group metav1.APIGroup
	if err := s.ask(bounded, &group, gv.Group); err != nil {
		return nil, err
	}
	for _, v := range group.Versions {
		others, err := s.resources(bounded, v.Version)
		if err != nil {
			return nil, err
		}
		for _, k := range s.kinds {
			if k.custom && others[k.resource] && !served[k.resource] {
				return nil, fmt.Errorf("the API server has %s of %s in version %s, and not in %s, which this build knows", k.resource, gv.Group, v.Version, gv.Version)
			}
		}
	}
	return served, nil
}

// resources asks which kinds there are in a version of the custom group.
func (s *Source) resources(ctx context.Context, version string) (map[string]bool, error) {
	var list metav1.APIResourceList
	if err := s.ask(ctx, &list, v1alpha1.GroupVersion.Group, version); err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, r := range list.APIResources {
		there[r.Name] = true
	}
	return there, nil
}

// ask reads what the API server says about a group, or a version of it. Of what it does not have it says nothing.
func (s *Source) ask(ctx context.Context, into any, path ...string) error {
	name := strings.Join(path, "/")
	answer := s.clients[v1alpha1.GroupVersion].Get().AbsPath(append([]string{"/apis"}, path...)...).Do(ctx)
	if apierrors.IsNotFound(answer.Error()) {
		return nil
	}
	raw, err := answer.Raw()
	if err := cmp.Or(answer.Error(), err); err != nil {
		return fmt.Errorf("ask for the kinds of %s: %w", name, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read the kinds of %s: %w", name, err)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
