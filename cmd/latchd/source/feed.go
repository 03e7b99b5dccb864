package source

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// feed brings the changes of all kinds into one sequence for the sink, and holds back pods of
// namespaces that have not been seen: policies may select them by the namespace's labels.
type feed struct {
	sink  Sink
	scope *scope

	mu         sync.Mutex
	namespaces map[string]struct{}
	passed     map[podName]struct{} // pods that the sink has
	held       map[podName]*corev1.Pod
}

func newFeed(sink Sink, scope *scope) *feed {
	return &feed{
		sink: sink, scope: scope,
		namespaces: map[string]struct{}{},
		passed:     map[podName]struct{}{},
		held:       map[podName]*corev1.Pod{},
	}
}

// change passes on what changed of one kind.
func (f *feed) change(upserted, deleted []apis.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var pass []apis.Object
	for _, o := range upserted {
		switch o := o.(type) {
		case *corev1.Namespace:
			f.namespaces[o.Name] = struct{}{}
			pass = append(append(pass, o), f.release(o.Name)...)
		case *corev1.Pod:
			if f.admit(o) {
				pass = append(pass, o)
			}
		default:
			pass = append(pass, o)
		}
	}
	for _, o := range deleted {
		f.forget(o)
	}
	f.sink.Change(pass, deleted)
}

// admit says whether a pod can be passed on now.
func (f *feed) admit(p *corev1.Pod) bool {
	name := podName{p.Namespace, p.Name}
	f.scope.setPod(name, true)
	_, known := f.namespaces[p.Namespace]
	_, passed := f.passed[name]
	if !known && !passed {
		f.held[name] = p
		return false
	}
	f.passed[name] = struct{}{}
	return true
}

// release returns the pods that waited for a namespace.
func (f *feed) release(namespace string) []apis.Object {
	var out []apis.Object
	for name, p := range f.held {
		if name.namespace == namespace {
			delete(f.held, name)
			f.passed[name] = struct{}{}
			out = append(out, p)
		}
	}
	return out
}

func (f *feed) forget(o apis.Object) {
	switch o := o.(type) {
	case *corev1.Namespace:
		delete(f.namespaces, o.Name)
	case *corev1.Pod:
		name := podName{o.Namespace, o.Name}
		f.scope.setPod(name, false)
		delete(f.passed, name)
		delete(f.held, name)
	}
}

// synced passes on that kinds are complete, in sequence with their content.
func (f *feed) synced(complete []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sink.Synced(complete...)
}

// gone passes on that a policy does not exist.
func (f *feed) gone(ref apis.Ref, asked time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sink.Gone(ref, asked)
}

// waitingFor names the namespaces that hold pods back, sorted.
func (f *feed) waitingFor() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for name := range f.held {
		out = append(out, name.namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
