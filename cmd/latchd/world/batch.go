package world

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/identity"
)

// batch is one change under the lock: it collects what is touched, so that selection and timers are
// settled once, at its end, and nothing sees a state in between.
type batch struct {
	*World
	now     time.Time
	touched map[identity.Identifier]struct{}
	dirty   map[*policyState]struct{} // whose timers or existence may have changed
}

// change runs a function as one batch and returns the identifiers that it touched, sorted.
func (w *World) change(do func(*batch)) []identity.Identifier {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { // Run has to look when something is due next
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}()
	return w.changeLocked(do)
}

func (w *World) changeLocked(do func(*batch)) []identity.Identifier {
	b := &batch{
		World: w, now: w.opts.Now(),
		touched: map[identity.Identifier]struct{}{}, dirty: map[*policyState]struct{}{},
	}
	b.advance() // what is due by now comes before what is new
	do(b)
	b.finish()
	ids := make([]identity.Identifier, 0, len(b.touched))
	for id := range b.touched {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// finish drops policies of which nothing is left, and settles what was touched.
func (b *batch) finish() {
	for p := range b.dirty {
		if !p.object && len(p.chunks) == 0 {
			b.drop(p)
			continue
		}
		if p.due(b.World).IsZero() {
			delete(b.timed, p)
		} else {
			b.timed[p] = struct{}{}
		}
	}
	for id := range b.touched {
		if i := b.idents[id]; i != nil {
			b.settle(i)
		}
	}
}

func (b *batch) touch(i *ident)          { b.touched[i.id] = struct{}{} }
func (b *batch) schedule(p *policyState) { b.dirty[p] = struct{}{} }

// touchPolicy touches the identifiers that a policy selects now or selected when they were settled last.
func (b *batch) touchPolicy(p *policyState) {
	b.schedule(p)
	visit := func(i *ident) {
		if _, was := i.selected[p]; was || b.selects(p, i) {
			b.touch(i)
		}
	}
	if p.ref.Namespace != "" {
		for i := range b.identsIn[p.ref.Namespace] {
			visit(i)
		}
		return
	}
	for _, i := range b.idents {
		visit(i)
	}
}

func (b *batch) upsert(o apis.Object) {
	ref, ok := apis.RefOf(o)
	if !ok || b.objects[ref] == o {
		return
	}
	b.objects[ref] = o
	switch o := o.(type) {
	case *corev1.Pod:
		b.upsertPod(podName{o.Namespace, o.Name}, newPod(o, b.opts))
	case *corev1.Namespace:
		b.upsertNamespace(o.Name, o.Labels)
	case *networkingv1.NetworkPolicy:
		b.upsertPolicy(ofNetworkPolicy(o))
	case *v1alpha1.ApplicationNetworkPolicy:
		b.upsertPolicy(ofApplicationNetworkPolicy(o))
	case *v1alpha1.ClusterNetworkPolicy:
		b.upsertPolicy(ofClusterNetworkPolicy(o))
	case *v1alpha1.PolicyEndpoint:
		b.upsertChunk(ref, b.parentOf(o), convertPolicyEndpoint(o, ref, b.opts))
	case *v1alpha1.ClusterPolicyEndpoint:
		b.upsertChunk(ref, clusterParentOf(o), convertClusterPolicyEndpoint(o, ref, b.opts))
	}
}

func (b *batch) delete(ref apis.Ref) {
	if _, ok := b.objects[ref]; !ok {
		return
	}
	delete(b.objects, ref)
	switch ref.Kind {
	case apis.KindPod:
		b.upsertPod(podName{ref.Namespace, ref.Name}, nil)
	case apis.KindNamespace:
		b.upsertNamespace(ref.Name, nil)
	case apis.KindPolicyEndpoint, apis.KindClusterPolicyEndpoint:
		b.removeChunk(ref)
	default:
		b.deletePolicy(ref)
	}
}
