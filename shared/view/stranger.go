package view

import (
	"maps"
	"slices"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// strangers are attachments that are bound as another identifier than their pod's record says: what judges
// them is in order, and not theirs. A writer that moves a pod is done in a moment.
func (n *Node) strangers(r *Report) {
	var found map[string]stranger
	settle(func() bool {
		now := n.strange()
		if found == nil {
			found = now
		}
		maps.DeleteFunc(found, func(key string, s stranger) bool {
			n, still := now[key]
			return !still || n.bound.Identifier != s.bound.Identifier || n.pod.Identifier != s.pod.Identifier
		})
		return len(found) == 0
	})
	for _, at := range slices.Sorted(maps.Keys(found)) {
		s := found[at]
		key := s.pod.Namespace + "/" + s.pod.Name
		if s.bound.Default != "" {
			r.add(KindRecord, key, "bound to the default (%s) as an unknown pod, but its record says identifier %s", s.bound.Default, s.pod.Identifier)
			continue
		}
		r.add(KindRecord, key, "bound as identifier %s, but its record says %s: it is judged by rules of other labels than it has", s.bound.Identifier, s.pod.Identifier)
	}
}

type stranger struct {
	bound state.Attachment
	pod   state.PodRecord
}

// strange returns those that there are now, by their attachment.
func (n *Node) strange() map[string]stranger {
	found := map[string]stranger{}
	records := n.records()
	pods := map[string]state.PodRecord{}
	for _, p := range records.pods {
		pods[p.Namespace+"/"+p.Name] = p
	}
	for _, a := range records.attachments {
		p, ok := pods[a.PodNamespace+"/"+a.PodName]
		replaced := a.PodUID != "" && p.UID != "" && a.PodUID != p.UID // by a pod of the same name
		if ok && !replaced && a.Phase == state.PhaseEnforced && a.Identifier != p.Identifier {
			found[identity.AttachmentKey(a.ContainerID, a.IfName)] = stranger{a, p}
		}
	}
	return found
}
