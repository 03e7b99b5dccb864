package apis

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// Kinds of objects that the watcher reads.
const (
	KindPod                      = "Pod"
	KindNamespace                = "Namespace"
	KindNetworkPolicy            = "NetworkPolicy"
	KindPolicyEndpoint           = "PolicyEndpoint"
	KindClusterPolicyEndpoint    = "ClusterPolicyEndpoint"
	KindApplicationNetworkPolicy = "ApplicationNetworkPolicy"
	KindClusterNetworkPolicy     = "ClusterNetworkPolicy"
)

// Object is a pointer to a struct of one of the kinds above. It is never changed after it was handed
// on: everyone shares it.
type Object interface {
	metav1.Object
	runtime.Object
}

// Ref names an object.
type Ref struct {
	Kind      string
	Namespace string
	Name      string
}

// String returns "Kind namespace/name", or "Kind name" for an object without a namespace.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Compare orders by kind, namespace and name.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Kind, o.Kind), cmp.Compare(r.Namespace, o.Namespace), cmp.Compare(r.Name, o.Name))
}

// RefOf names an object by its Go type, since objects of an informer carry no kind. It returns false
// for a type that the watcher does not read.
func RefOf(o Object) (Ref, bool) {
	var kind string
	switch o.(type) {
	case *corev1.Pod:
		kind = KindPod
	case *corev1.Namespace:
		return Ref{Kind: KindNamespace, Name: o.GetName()}, true
	case *networkingv1.NetworkPolicy:
		kind = KindNetworkPolicy
	case *v1alpha1.PolicyEndpoint:
		kind = KindPolicyEndpoint
	case *v1alpha1.ApplicationNetworkPolicy:
		kind = KindApplicationNetworkPolicy
	case *v1alpha1.ClusterPolicyEndpoint:
		return Ref{Kind: KindClusterPolicyEndpoint, Name: o.GetName()}, true
	case *v1alpha1.ClusterNetworkPolicy:
		return Ref{Kind: KindClusterNetworkPolicy, Name: o.GetName()}, true
	default:
		return Ref{}, false
	}
	return Ref{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}, true
}
