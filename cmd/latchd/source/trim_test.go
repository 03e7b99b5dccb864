package source

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

func TestTrim(t *testing.T) {
	now := metav1.Now()
	full := metav1.ObjectMeta{
		Namespace: "t1", Name: "x", UID: "u1", ResourceVersion: "5", Labels: map[string]string{"app": "a"},
		Annotations: map[string]string{"k": "v"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		OwnerReferences: []metav1.OwnerReference{{Kind: "NetworkPolicy", Name: "np", UID: "u2", APIVersion: "v1"}},
		Finalizers:      []string{"f"}, CreationTimestamp: now,
	}
	with := func(f func(*metav1.ObjectMeta)) metav1.ObjectMeta {
		m := *full.DeepCopy()
		f(&m)
		return m
	}
	selector := metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	pod := corev1.Pod{ObjectMeta: full}
	pod.Spec = corev1.PodSpec{NodeName: "n1", HostNetwork: true, Containers: []corev1.Container{{Name: "c"}}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.1", PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "c"}}}
	trimmed := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "x", UID: "u1", Labels: full.Labels}}
	trimmed.Spec = corev1.PodSpec{NodeName: "n1", HostNetwork: true}
	trimmed.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.1", PodIPs: pod.Status.PodIPs}
	mirror, static := pod, trimmed
	mirror.ObjectMeta = with(func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"} })
	static.UID, static.Annotations = "hash", mirror.Annotations
	ending, ended := pod, trimmed
	ending.DeletionTimestamp, ended.DeletionTimestamp = &now, &now

	np := networkingv1.NetworkPolicy{ObjectMeta: full, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: selector, PolicyTypes: []networkingv1.PolicyType{"Egress"},
		Ingress: make([]networkingv1.NetworkPolicyIngressRule, 3), Egress: []networkingv1.NetworkPolicyEgressRule{{
			To: []networkingv1.NetworkPolicyPeer{{PodSelector: &selector}}}, {}},
	}}
	spec := v1alpha1.PolicyEndpointSpec{
		PolicyRef: v1alpha1.PolicyReference{Namespace: "t1", Name: "np"}, PodSelector: &selector,
		Ingress: []v1alpha1.EndpointInfo{{CIDR: "10.0.0.0/8"}},
	}
	entry := func(host, name string) v1alpha1.PodEndpoint {
		return v1alpha1.PodEndpoint{HostIP: host, PodIP: "10.1.0.1", Namespace: "t1", Name: name}
	}
	pe, cut := v1alpha1.PolicyEndpoint{ObjectMeta: full, Spec: spec}, v1alpha1.PolicyEndpoint{ObjectMeta: meta("t1", "x"), Spec: spec}
	pe.Spec.PodSelectorEndpoints = []v1alpha1.PodEndpoint{entry("10.0.0.11", "other"), entry("10.0.0.10", "here"),
		entry("fd00:10:0::10", "here-v6"), entry("", "unknown"), entry("10.0.0.12", "ours"), entry("node", "odd")}
	cut.Spec.PodSelectorEndpoints = []v1alpha1.PodEndpoint{entry("10.0.0.10", "here"),
		entry("fd00:10:0::10", "here-v6"), entry("", "unknown"), entry("10.0.0.12", "ours"), entry("node", "odd")}
	cut.OwnerReferences = []metav1.OwnerReference{{Kind: "NetworkPolicy", Name: "np"}}

	tests := []struct {
		name     string
		kind     string
		in, want apis.Object
	}{
		{"pod keeps who and where it is", apis.KindPod, &pod, &trimmed},
		{"static pod has the uid that the runtime knows", apis.KindPod, &mirror, &static},
		{"terminating pod is one", apis.KindPod, &ending, &ended},
		{"namespace keeps its labels", apis.KindNamespace, &corev1.Namespace{ObjectMeta: with(func(m *metav1.ObjectMeta) { m.Namespace = "" })},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: full.Labels}}},
		{"policy keeps selector, types, and whether it has egress rules", apis.KindNetworkPolicy, &np,
			&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "x", UID: "u1"}, Spec: networkingv1.NetworkPolicySpec{
				PodSelector: selector, PolicyTypes: np.Spec.PolicyTypes, Egress: make([]networkingv1.NetworkPolicyEgressRule, 1)}}},
		{"endpoints object keeps rules, owner and the pods of this node", apis.KindPolicyEndpoint, &pe, &cut},
	}
	s := newScope()
	s.setAddrs(here)
	s.setPod(podName{"t1", "ours"}, true)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, k := range kindsOf("n1") {
				if k.name != tt.kind {
					continue
				}
				got := k.trim(s, tt.in)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(got, k.trim(s, got)); diff != "" {
					t.Errorf("trimmed twice: %s", diff)
				}
			}
		})
	}
}

// TestTrimKeepsOneCondition keeps of a pod's conditions and gates the one that is asked for, if one is.
func TestTrimKeepsOneCondition(t *testing.T) {
	in := &corev1.Pod{}
	for _, c := range []corev1.PodConditionType{"Ready", "mine"} {
		in.Spec.ReadinessGates = append(in.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: c})
		in.Status.Conditions = append(in.Status.Conditions, corev1.PodCondition{Type: c})
	}
	for condition, want := range map[corev1.PodConditionType]int{"": 0, "mine": 1, "none": 0} {
		s := newScope()
		s.condition = condition
		got := trimPod(s, in).(*corev1.Pod)
		if len(got.Status.Conditions) != want || len(got.Spec.ReadinessGates) != want || want == 1 && got.Status.Conditions[0].Type != "mine" {
			t.Errorf("asked for %q: %+v, %+v", condition, got.Status.Conditions, got.Spec.ReadinessGates)
		}
	}
}

// TestStatusOfProgress says since when something fails, as long as anything does.
func TestStatusOfProgress(t *testing.T) {
	now := time.Unix(1000, 0)
	p := newProgress(kindsOf("n1"), func() time.Time { return now })
	first, last := p.note("pods", errAny)
	if !first || last {
		t.Errorf("first failure: %v, %v", first, last)
	}
	now = now.Add(time.Minute)
	p.note("namespaces", errAny)
	p.note("pods", errAny)
	if st := p.status(); !st.Away.Equal(time.Unix(1000, 0)) || len(st.Errors) != 2 {
		t.Errorf("status %+v", st)
	}
	if first, last := p.note("pods", nil); first || last {
		t.Errorf("one of two is well: %v, %v", first, last)
	}
	if first, last := p.note("namespaces", nil); first || !last {
		t.Errorf("all are well: %v, %v", first, last)
	}
	if st := p.status(); !st.Away.IsZero() {
		t.Errorf("status %+v", st)
	}
}
