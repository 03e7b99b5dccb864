package reconcile

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// edit changes something at random.
func (h *history) edit() {
	ref := h.ref()
	chunk := h.chunk(ref, h.IntN(chunkNames))
	own := h.policy(ref)
	one := func(o apis.Object) []apis.Object { return []apis.Object{o} }
	switch h.IntN(31) {
	case 0, 1, 2, 3, 4, 5, 6:
		h.change(one(chunk), nil)
	case 7, 8, 9, 10:
		h.change(one(own), nil)
	case 11, 12:
		if len(h.policies()[ref]) > 1 || h.object(ref) == nil || h.IntN(8) == 0 {
			h.change(nil, one(chunk))
		}
	case 13:
		h.change(nil, one(own))
	case 14: // a policy goes as a whole, or is replaced under its name
		gone := append(h.policies()[ref], own)
		h.change(nil, gone)
		if h.IntN(2) == 0 {
			h.change([]apis.Object{own, chunk, h.chunk(ref, h.IntN(chunkNames))}, nil)
		}
	case 30: // everything goes but the pods
		var gone []apis.Object
		for _, o := range h.all() {
			if refOf(o).Kind != apis.KindPod && refOf(o).Kind != apis.KindNamespace {
				gone = append(gone, o)
			}
		}
		h.change(nil, gone)
	case 15: // replaced in one step, by other endpoints objects
		old := slices.DeleteFunc(h.policies()[ref], func(o apis.Object) bool { return refOf(o) == refOf(chunk) })
		h.change([]apis.Object{own, chunk}, old)
	case 16: // the same again, by another pointer
		for _, o := range h.all()[:min(2, len(h.objects))] {
			h.change(one(o.DeepCopyObject().(apis.Object)), nil)
		}
	case 17, 18, 19, 20:
		h.change(one(h.pod(h.IntN(podNames))), nil)
	case 21:
		h.change(nil, one(h.pod(h.IntN(podNames))))
	case 22:
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.namespace(), Labels: h.labels()}}
		if h.IntN(4) == 0 {
			h.change(nil, one(ns))
		} else {
			h.change(one(ns), nil)
		}
	case 23, 24, 25: // a pod of it starts, or the last one stops
		if ids := h.w.Identifiers(); len(ids) > 0 {
			h.toggle(ids[h.IntN(len(ids))])
		}
	case 26:
		h.pass(6 * time.Second)
	case 27:
		if h.synced && h.IntN(10) == 0 {
			h.restart()
		}
		if !h.synced && h.IntN(4) == 0 {
			h.synced = true
			h.enqueue(h.w.Synced(h.complete...))
		}
	default:
		h.pass(time.Duration(h.IntN(700)) * time.Millisecond)
	}
}

// change makes a change of objects, as one of the sources delivers it.
func (h *history) change(upserted, deleted []apis.Object) {
	for _, o := range deleted {
		ref := refOf(o)
		if gone := h.objects[ref]; gone != nil {
			h.had[policy.PolicyRef{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}] = gone
		}
		delete(h.objects, ref)
	}
	for _, o := range upserted {
		ref := refOf(o)
		h.objects[ref] = o
		delete(h.had, policy.PolicyRef{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	}
	switch h.IntN(4) {
	case 0:
		h.enqueue(h.w.Replace(h.all()))
	case 1: // one by one
		for _, o := range deleted {
			h.enqueue(h.w.Delete(o))
		}
		for _, o := range upserted {
			h.enqueue(h.w.Upsert(o))
		}
	default:
		h.enqueue(h.w.Delete(deleted...))
		h.enqueue(h.w.Upsert(upserted...))
	}
}

// toggle attaches something of an identifier, or takes what is attached away.
func (h *history) toggle(id identity.Identifier) {
	if h.kernel != nil {
		h.kernel.toggle(id)
	} else {
		h.attached[id] = !h.attached[id]
	}
	h.queue[id] = true
}

// restart plays a latchd that begins anew and takes over what is attached, which may have no pod any more.
func (h *history) restart() {
	h.w, h.memory, h.inputs, h.queue = world.New(h.opts), compiled{}, map[string]policy.Input{}, map[identity.Identifier]bool{}
	clear(h.had) // that they were there is not known any more
	adopt := func() {
		for id, on := range h.attached {
			if was, ok := h.written[id]; ok && on {
				h.w.Adopt(id, was.namespace, was.labels, earlier(state.IdentifierRecord{
					Policies: was.policies, Pending: was.pending, Running: state.SlotRef{Sources: was.running.Sources},
				}))
			}
		}
	}
	if h.kernel != nil {
		adopt = h.kernel.restart
	}
	listed := h.IntN(2) == 0
	if !listed { // objects that come later
		adopt()
	}
	h.w.Replace(h.all())
	h.synced = true
	h.w.Synced(h.complete...)
	if listed {
		adopt()
	}
	h.enqueue(h.w.Identifiers())
}

// all are the objects that are there, in random order.
func (h *history) all() []apis.Object {
	out := slices.SortedFunc(maps.Values(h.objects), func(a, b apis.Object) int { return refOf(a).Compare(refOf(b)) })
	h.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
