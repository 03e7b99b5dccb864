package world

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/latch-cni/latch/shared/identity"
)

// LocalPod is a pod of the node with an object that tells its addresses.
type LocalPod struct {
	PodRef
	Identifier  identity.Identifier
	Addrs       []netip.Addr // of both families, sorted
	Terminating bool
}

// LocalPods returns the pods of this node that are under policy and have addresses, as far as they have
// objects, sorted.
func (w *World) LocalPods() []LocalPod {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []LocalPod
	for name, i := range w.member {
		p := w.pods[name]
		if p == nil {
			continue
		}
		l := LocalPod{PodRef: PodRef{Namespace: name.namespace, Name: name.name, UID: p.uid}, Identifier: i.id, Terminating: p.terminating}
		for _, ip := range p.ips {
			if a, err := netip.ParseAddr(ip); err == nil {
				l.Addrs = append(l.Addrs, a.Unmap())
			}
		}
		slices.SortFunc(l.Addrs, netip.Addr.Compare)
		if l.Addrs = slices.Compact(l.Addrs); len(l.Addrs) > 0 {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b LocalPod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}
