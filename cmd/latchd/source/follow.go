package source

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	// listPatience bounds a list, watchPatience the wait for the answer to a watch, not the watch: a
	// server that accepts a request and says nothing is asked again.
	listPatience  = 2 * time.Minute
	watchPatience = 30 * time.Second
)

// backoff is what follows when a kind cannot be listed, and interrupted when its watch broke soon. Nodes
// are many and the server may be ill, but what changed meanwhile is not in force.
var (
	backoff     = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 8 * time.Second}
	interrupted = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 6, Cap: 2 * time.Second}
)

// lasting is how long a watch has to last to be none that broke soon.
const lasting = 5 * time.Second

// watch keeps a store up to date until the context ends.
func (s *Source) watch(ctx context.Context, st *store) {
	k, pause := st.kind, backoff
	lw := cache.NewListWatchFromClient(s.clients[k.group], k.resource, metav1.NamespaceAll, k.selector)
	r := cache.NewReflectorWithOptions(&patient{lw: lw, note: func(err error) { s.note(k.name, err) }},
		k.example, st, cache.ReflectorOptions{Name: k.resource, TypeDescription: k.name, Backoff: &pause})
	failed, broken := backoff, interrupted
	for ctx.Err() == nil {
		begin := time.Now()
		err := r.ListAndWatchWithContext(ctx)
		if time.Since(begin) > lasting {
			broken = interrupted
		}
		if err == nil {
			failed = backoff
			sleep(ctx, broken.Step())
			continue
		}
		if ctx.Err() == nil {
			s.note(k.name, err)
		}
		sleep(ctx, failed.Step())
	}
}

// patient lists and watches with bounded patience, and tells how it went.
type patient struct {
	lw   *cache.ListWatch
	note func(error)
}

func (p *patient) List(o metav1.ListOptions) (runtime.Object, error) {
	return p.ListWithContext(context.Background(), o)
}

func (p *patient) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return p.WatchWithContext(context.Background(), o)
}

func (p *patient) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	bounded, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	list, err := p.lw.ListWithContext(bounded, o)
	p.tell(ctx, err)
	return list, err
}

func (p *patient) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	open, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(watchPatience, cancel)
	w, err := p.lw.WatchWithContext(open, o)
	timer.Stop()
	p.tell(ctx, err)
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{w, cancel}, nil
}

func (p *patient) tell(ctx context.Context, err error) {
	if ctx.Err() == nil {
		p.note(err)
	}
}

// stream ends its context when it is stopped.
type stream struct {
	watch.Interface
	cancel context.CancelFunc
}

func (s *stream) Stop() {
	s.Interface.Stop()
	s.cancel()
}
