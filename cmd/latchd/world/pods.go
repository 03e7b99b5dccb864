package world

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/latch-cni/latch/shared/identity"
)

// PodRef names a pod of the node. UID is empty if it is not known.
type PodRef struct {
	Namespace string
	Name      string
	UID       string
}

type podName struct{ namespace, name string }

// pod is what matters of a Pod object.
type pod struct {
	uid         string
	labels      map[string]string
	local       bool // to be judged by policy on this node
	terminating bool
	ips         []string // as the API server tells, empty if it does not
}

// newPod reads the fields that an informer's transform must leave in place: name, uid, labels and
// deletionTimestamp, spec.nodeName and hostNetwork, status.phase, podIP and podIPs.
func newPod(o *corev1.Pod, opts Options) *pod {
	p := &pod{
		uid: string(o.UID), labels: o.Labels, terminating: o.DeletionTimestamp != nil,
		local: !o.Spec.HostNetwork &&
			o.Status.Phase != corev1.PodSucceeded && o.Status.Phase != corev1.PodFailed,
	}
	switch {
	case o.Spec.NodeName == "":
		p.local = p.local && !opts.PodsComplete
	case opts.NodeName != "":
		p.local = p.local && o.Spec.NodeName == opts.NodeName
	}
	if o.Status.PodIP != "" {
		p.ips = append(p.ips, o.Status.PodIP)
	}
	for _, ip := range o.Status.PodIPs {
		p.ips = append(p.ips, ip.IP)
	}
	return p
}

func (p *pod) equal(o *pod) bool {
	return p.uid == o.uid && p.local == o.local && p.terminating == o.terminating &&
		maps.Equal(p.labels, o.labels) && slices.Equal(p.ips, o.ips)
}

// ident is an identifier that has local pods, or is running.
type ident struct {
	id        identity.Identifier
	namespace string
	labels    map[string]string
	unlabeled bool // the labels are not known: its pod has its name for an identifier
	pods      map[podName]struct{}
	selected  map[*policyState]struct{} // as last settled
	running   bool
	applied   map[*policyState]struct{} // in Create as it was last applied
	under     map[*policyState]struct{} // in Create when what runs was created
	earlier   *Earlier                  // what runs may have of it; nil once rules of this run are in the kernel
	isolation [2]isolation
}

// upsertPod takes over a pod's object, or its absence.
func (b *batch) upsertPod(name podName, p *pod) {
	old := b.pods[name]
	if old != nil && p != nil && old.equal(p) {
		return
	}
	if p == nil {
		delete(b.pods, name)
	} else {
		b.pods[name] = p
	}
	if old != nil && (p == nil || p.uid != old.uid) {
		b.forgetListing(name, old)
	}
	b.place(name)
}

// place puts a pod under the identifier that it has now, and touches the one that it leaves.
func (b *batch) place(name podName) {
	var id identity.Identifier
	p := b.pods[name]
	switch {
	case p != nil && p.local:
		id = identity.Of(name.namespace, p.labels)
	case p == nil && b.listed[name] > 0 && !b.opts.PodsComplete:
		id = identity.OfName(name.namespace, name.name)
	}
	if old := b.member[name]; old != nil {
		b.touch(old)
		if old.id == id {
			return
		}
		delete(old.pods, name)
		delete(b.member, name)
		b.release(old)
	}
	if id == "" {
		return
	}
	i := b.idents[id]
	if i == nil {
		i = b.newIdent(id, name.namespace)
	}
	if i.unlabeled = p == nil; p != nil {
		i.labels = p.labels // also in place of what an earlier run's record said
	}
	i.pods[name] = struct{}{}
	b.member[name] = i
	b.touch(i)
}

func (w *World) newIdent(id identity.Identifier, namespace string) *ident {
	i := &ident{
		id: id, namespace: namespace,
		pods:     map[podName]struct{}{},
		selected: map[*policyState]struct{}{},
		applied:  map[*policyState]struct{}{},
	}
	w.idents[id] = i
	if w.identsIn[namespace] == nil {
		w.identsIn[namespace] = map[*ident]struct{}{}
	}
	w.identsIn[namespace][i] = struct{}{}
	return i
}

// release forgets an identifier without pods, unless something of it runs.
func (w *World) release(i *ident) {
	if len(i.pods) > 0 || i.running {
		return
	}
	delete(w.idents, i.id)
	delete(w.waiting, i)
	delete(w.identsIn[i.namespace], i)
	if len(w.identsIn[i.namespace]) == 0 {
		delete(w.identsIn, i.namespace)
	}
}

// refs names the pods of an identifier, sorted.
func (w *World) refs(i *ident) []PodRef {
	refs := make([]PodRef, 0, len(i.pods))
	for name := range i.pods {
		ref := PodRef{Namespace: name.namespace, Name: name.name}
		if p := w.pods[name]; p != nil {
			ref.UID = p.uid
		}
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b PodRef) int { return cmp.Compare(a.Name, b.Name) })
	return refs
}

// upsertNamespace takes over labels, nil when the object is gone.
func (b *batch) upsertNamespace(name string, labels map[string]string) {
	old, known := b.namespaces[name]
	if labels == nil && b.objects[namespaceRef(name)] == nil {
		delete(b.namespaces, name)
	} else {
		if known && maps.Equal(old, labels) {
			return
		}
		b.namespaces[name] = labels
	}
	if len(b.policiesIn[""]) == 0 {
		return
	}
	for i := range b.identsIn[name] {
		b.touch(i)
	}
}

// namespaceLabels returns the labels of a namespace. Every namespace has its name as a label, also one
// that is not known.
func (w *World) namespaceLabels(name string) map[string]string {
	labels := w.namespaces[name]
	if _, ok := labels[corev1.LabelMetadataName]; ok {
		return labels
	}
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelMetadataName] = name
	return labels
}

// isNodeIP says whether a host of a listed pod is this node.
func isNodeIP(host string, opts Options) bool {
	if len(opts.NodeIPs) == 0 || host == "" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && slices.Contains(opts.NodeIPs, addr.Unmap())
}
