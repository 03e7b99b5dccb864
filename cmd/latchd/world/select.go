package world

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// selector says which pods a policy is about: of one namespace, or of those that namespaces matches.
type selector struct {
	namespaces labels.Selector // nil: the policy's own
	pods       labels.Selector
}

func podSelector(s *metav1.LabelSelector) (*selector, error) {
	pods, err := metav1.LabelSelectorAsSelector(s) // nil selects nothing
	if err != nil {
		return nil, err
	}
	return &selector{pods: pods}, nil
}

func subjectSelector(s *v1alpha1.Subject) (*selector, error) {
	out := &selector{namespaces: labels.Nothing(), pods: labels.Everything()}
	var err error
	switch {
	case s == nil:
	case s.Pods != nil:
		if out.namespaces, err = metav1.LabelSelectorAsSelector(&s.Pods.NamespaceSelector); err != nil {
			return nil, err
		}
		out.pods, err = metav1.LabelSelectorAsSelector(&s.Pods.PodSelector)
	case s.Namespaces != nil:
		out.namespaces, err = metav1.LabelSelectorAsSelector(s.Namespaces)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *selector) equal(o *selector) bool {
	if s == nil || o == nil {
		return s == o
	}
	return equalSelectors(s.namespaces, o.namespaces) && equalSelectors(s.pods, o.pods)
}

// equalSelectors also looks at what the text does not tell: everything and nothing are both written "".
func equalSelectors(a, b labels.Selector) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.String() == b.String() && a.Empty() == b.Empty()
}

// matches judges an identifier by labels alone. Labels that are not known match an empty selector only.
func (w *World) matches(s *selector, i *ident) bool {
	if s == nil {
		return false
	}
	if s.namespaces != nil && !s.namespaces.Matches(labels.Set(w.namespaceLabels(i.namespace))) {
		return false
	}
	if i.unlabeled {
		return s.pods.Empty()
	}
	return s.pods.Matches(labels.Set(i.labels))
}

// selects says whether a policy governs the pods of an identifier. See the package comment.
func (w *World) selects(p *policyState, i *ident) bool {
	switch {
	case p.expired:
		return false
	case p.selector == nil:
		return w.selectedByEndpoints(p, i)
	case w.matches(p.selector, i):
		return true
	case i.unlabeled:
		return w.isListed(p, i)
	case p.selector.namespaces != nil && w.unknown(i.namespace):
		return w.isListed(p, i) // labels of the namespace are not known: do not leave a pod out for it
	}
	return false
}

func (w *World) unknown(namespace string) bool {
	_, known := w.namespaces[namespace]
	return !known
}

// selectedByEndpoints decides without the policy object.
func (w *World) selectedByEndpoints(p *policyState, i *ident) bool {
	if w.isListed(p, i) {
		return true
	}
	if i.unlabeled { // known by being listed, so every policy had the time to list it
		return false
	}
	if len(i.pods) == 0 { // what runs has no pod any more, so nobody lists it: as it was
		if _, was := i.selected[p]; was {
			return true
		}
	}
	for name := range i.pods {
		if w.isDelisted(p, name) {
			return false
		}
	}
	for _, c := range p.chunks {
		if w.matches(c.selector, i) {
			return true
		}
	}
	return false
}

func (w *World) isListed(p *policyState, i *ident) bool {
	for name := range i.pods {
		if w.lists(p, name) || w.wasListed(p, name) && w.pods[name].terminating {
			return true
		}
	}
	return false
}

// lists says whether a pod is listed now. An entry with another address is of an earlier pod of the name.
func (w *World) lists(p *policyState, name podName) bool {
	for _, c := range p.chunks {
		ip, ok := c.listed[name]
		if !ok {
			continue
		}
		pod := w.pods[name]
		if ip == "" || pod == nil || len(pod.ips) == 0 || slices.Contains(pod.ips, ip) {
			return true
		}
	}
	return false
}

// podUID is a pod and not its namesakes.
type podUID struct {
	podName
	uid string
}

// wasListed says whether a pod with an object was listed while it was known.
func (w *World) wasListed(p *policyState, name podName) bool {
	pod := w.pods[name]
	if pod == nil {
		return false
	}
	_, ok := p.everListed[podUID{name, pod.uid}]
	return ok
}

// isDelisted says whether a pod was taken from the list while it lives: the policy does not select it any
// more. A terminating pod leaves the list too, but keeps its policy.
func (w *World) isDelisted(p *policyState, name podName) bool {
	return w.wasListed(p, name) && !w.lists(p, name) && !w.pods[name].terminating
}

// rememberListing notes which pods of an identifier a policy lists. Only without the policy object does
// it matter.
func (w *World) rememberListing(p *policyState, i *ident) {
	if p.selector != nil {
		return
	}
	for name := range i.pods {
		if pod := w.pods[name]; pod != nil && w.lists(p, name) {
			p.everListed[podUID{name, pod.uid}] = struct{}{}
		}
	}
}

// forgetListing forgets a pod that is gone.
func (w *World) forgetListing(name podName, old *pod) {
	for _, ns := range []string{name.namespace, ""} {
		for p := range w.policiesIn[ns] {
			delete(p.everListed, podUID{name, old.uid})
		}
	}
}

func namespaceRef(name string) apis.Ref { return apis.Ref{Kind: apis.KindNamespace, Name: name} }
