package source

import (
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// scope is what belongs to the node: its addresses and its pods.
type scope struct {
	condition corev1.PodConditionType // of pods, that is kept; empty: none

	mu    sync.RWMutex
	addrs []netip.Addr // sorted
	pods  map[podName]struct{}
}

type podName struct{ namespace, name string }

func newScope() *scope { return &scope{pods: map[podName]struct{}{}} }

// setAddrs takes over the node's addresses and says whether they differ from before.
func (s *scope) setAddrs(addrs []netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.addrs, addrs) {
		return false
	}
	s.addrs = addrs
	return true
}

// setPod notes that a pod is on this node, or is not any more.
func (s *scope) setPod(p podName, here bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if here {
		s.pods[p] = struct{}{}
	} else {
		delete(s.pods, p)
	}
}

// cut keeps the listed pods that are, or may be, on this node. The host of a pod is not always known
// when its address is.
func (s *scope) cut(listed []v1alpha1.PodEndpoint) []v1alpha1.PodEndpoint {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []v1alpha1.PodEndpoint
	for _, p := range listed {
		if s.isHere(p) {
			out = append(out, p)
		}
	}
	return slices.Clip(out)
}

func (s *scope) isHere(p v1alpha1.PodEndpoint) bool {
	if p.HostIP == "" {
		return true
	}
	host, err := netip.ParseAddr(p.HostIP)
	if err != nil || slices.Contains(s.addrs, host.Unmap()) {
		return true
	}
	_, ours := s.pods[podName{p.Namespace, p.Name}]
	return ours
}

// addrsOf returns the addresses by which pods reach the node itself, sorted. External ones are not
// the node's: packets to them leave it.
func addrsOf(n *corev1.Node) []netip.Addr {
	var out []netip.Addr
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			out = append(out, addr.Unmap())
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}
