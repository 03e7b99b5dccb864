package source

import (
	"context"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

const (
	orphanPeriod   = time.Second
	orphanPatience = 10 * time.Second // of all questions of a period together
)

// judgeOrphans asks for the policies of a kind that the sink misses, until the context ends. Without an
// answer the sink is told nothing.
func (s *Source) judgeOrphans(ctx context.Context, k *kind) {
	failed, pause := backoff, orphanPeriod
	for {
		sleep(ctx, pause)
		err := s.judge(ctx, k)
		if ctx.Err() != nil {
			return
		}
		s.note("missing "+k.resource, err)
		if pause = orphanPeriod; err == nil {
			failed = backoff
		} else {
			pause = max(pause, failed.Step())
		}
	}
}

func (s *Source) judge(ctx context.Context, k *kind) error {
	bounded, cancel := context.WithTimeout(ctx, orphanPatience)
	defer cancel()
	var late error
	for _, ref := range s.sink.Orphans(k.name) {
		asked := time.Now()
		exists, err := s.exists(bounded, k, ref)
		switch {
		case err != nil:
			return fmt.Errorf("ask for %s: %w", ref, err)
		case exists:
			late = fmt.Errorf("%s exists, and its watch does not tell", ref)
		default:
			s.feed.gone(ref, asked)
		}
	}
	return late
}

// exists asks the API server for an object. A list without a resource version is as new as the request,
// whatever a watch has told; and unlike a get it tells an object that is not there from a kind that is not.
func (s *Source) exists(ctx context.Context, k *kind, ref apis.Ref) (bool, error) {
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, ref.Name)
	list, err := cache.NewListWatchFromClient(s.clients[k.group], k.resource, ref.Namespace, name).ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	return apimeta.LenList(list) > 0, nil
}
