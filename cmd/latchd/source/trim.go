package source

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// The trim functions copy what is read of an object into a new one, so that the rest can be collected.
// Trimming what is trimmed changes nothing.

// mirrorAnnotation is on the Pod object that kubelet makes for a pod of its manifest directory. Its
// value is the uid that the runtime knows: the object's own is another.
const mirrorAnnotation = corev1.MirrorPodAnnotationKey

func trimNode(_ *scope, o runtime.Object) apis.Object {
	in := o.(*corev1.Node)
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: in.Name}}
	out.Status.Addresses = in.Status.Addresses
	return out
}

func trimPod(s *scope, o runtime.Object) apis.Object {
	in := o.(*corev1.Pod)
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: in.Namespace, Name: in.Name, UID: in.UID, Labels: in.Labels,
		DeletionTimestamp: in.DeletionTimestamp,
	}}
	if uid := in.Annotations[mirrorAnnotation]; uid != "" {
		out.UID = types.UID(uid)
		out.Annotations = map[string]string{mirrorAnnotation: uid}
	}
	if s.condition != "" {
		out.Spec.ReadinessGates = filter(in.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == s.condition })
		out.Status.Conditions = filter(in.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == s.condition })
	}
	out.Spec.NodeName, out.Spec.HostNetwork = in.Spec.NodeName, in.Spec.HostNetwork
	out.Status.Phase, out.Status.PodIP, out.Status.PodIPs = in.Status.Phase, in.Status.PodIP, in.Status.PodIPs
	return out
}

func trimNamespace(_ *scope, o runtime.Object) apis.Object {
	in := o.(*corev1.Namespace)
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in.Name, Labels: in.Labels}}
}

func trimNetworkPolicy(_ *scope, o runtime.Object) apis.Object {
	in := o.(*networkingv1.NetworkPolicy)
	out := &networkingv1.NetworkPolicy{ObjectMeta: policyNames(in)}
	out.Spec.PodSelector, out.Spec.PolicyTypes = in.Spec.PodSelector, in.Spec.PolicyTypes
	if len(in.Spec.Egress) > 0 { // that there are rules is the default of policyTypes
		out.Spec.Egress = make([]networkingv1.NetworkPolicyEgressRule, 1)
	}
	return out
}

func trimApplicationNetworkPolicy(_ *scope, o runtime.Object) apis.Object {
	in := o.(*v1alpha1.ApplicationNetworkPolicy)
	return &v1alpha1.ApplicationNetworkPolicy{ObjectMeta: policyNames(in), Spec: in.Spec}
}

func trimClusterNetworkPolicy(_ *scope, o runtime.Object) apis.Object {
	in := o.(*v1alpha1.ClusterNetworkPolicy)
	return &v1alpha1.ClusterNetworkPolicy{ObjectMeta: policyNames(in), Spec: in.Spec}
}

func trimPolicyEndpoint(s *scope, o runtime.Object) apis.Object {
	in := o.(*v1alpha1.PolicyEndpoint)
	out := &v1alpha1.PolicyEndpoint{ObjectMeta: names(in), Spec: in.Spec}
	for _, owner := range in.OwnerReferences {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{Kind: owner.Kind, Name: owner.Name})
	}
	out.Spec.PodSelectorEndpoints = s.cut(in.Spec.PodSelectorEndpoints)
	out.Spec.Share()
	return out
}

func trimClusterPolicyEndpoint(s *scope, o runtime.Object) apis.Object {
	in := o.(*v1alpha1.ClusterPolicyEndpoint)
	out := &v1alpha1.ClusterPolicyEndpoint{ObjectMeta: names(in), Spec: in.Spec}
	out.Spec.PodSelectorEndpoints = s.cut(in.Spec.PodSelectorEndpoints)
	out.Spec.Share()
	return out
}

func names(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// policyNames keeps the uid as well, for the events about a policy.
func policyNames(o metav1.Object) metav1.ObjectMeta {
	out := names(o)
	out.UID = o.GetUID()
	return out
}

// filter returns the elements that are wanted, in a slice of their own.
func filter[E any](all []E, wanted func(E) bool) []E {
	var out []E
	for _, e := range all {
		if wanted(e) {
			out = append(out, e)
		}
	}
	return out
}
