package world

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/shared/identity"
)

func TestAddressesOfLocalPods(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		p.Namespace, p.Name, p.UID = "t1", name, "u"
		p.Spec.NodeName = "n1"
		p.Status.PodIP = "10.0.1.11"
		p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.1.11"}, {IP: "fd00:10:1::11"}}
		if change != nil {
			change(p)
		}
		return p
	}
	now := metav1.Now()
	w := New(Options{NodeName: "n1"})
	w.Upsert(
		pod("dual", nil),
		pod("terminating", func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
		pod("without address", func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }),
		pod("of the host", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		pod("finished", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }),
	)
	both := []netip.Addr{netip.MustParseAddr("10.0.1.11"), netip.MustParseAddr("fd00:10:1::11")}
	id := identity.Of("t1", nil)
	want := []LocalPod{
		{PodRef: PodRef{Namespace: "t1", Name: "dual", UID: "u"}, Identifier: id, Addrs: both},
		{PodRef: PodRef{Namespace: "t1", Name: "terminating", UID: "u"}, Identifier: id, Addrs: both, Terminating: true},
	}
	if diff := cmp.Diff(want, w.LocalPods(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}
