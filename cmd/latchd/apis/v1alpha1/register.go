package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of all types here.
var GroupVersion = schema.GroupVersion{Group: "networking.k8s.aws", Version: "v1alpha1"}

// AddToScheme registers the types, so that a REST client can encode and decode them.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&PolicyEndpoint{}, &PolicyEndpointList{},
		&ClusterPolicyEndpoint{}, &ClusterPolicyEndpointList{},
		&ApplicationNetworkPolicy{}, &ApplicationNetworkPolicyList{},
		&ClusterNetworkPolicy{}, &ClusterNetworkPolicyList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
