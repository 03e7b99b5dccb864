package source

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// kindNode is followed for its addresses only.
const kindNode = "Node"

// kind is one kind of objects to follow.
type kind struct {
	name     string
	resource string // plural, as in the address
	group    schema.GroupVersion
	selector fields.Selector
	example  runtime.Object
	trim     func(*scope, runtime.Object) apis.Object

	custom    bool // its CRD may be absent
	isPolicy  bool // Sink.Synced names it, and Sink.Orphans those that are missing
	listsPods bool // trimmed by the node's addresses
}

func kindsOf(node string) []*kind {
	core, net, aws := corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion, v1alpha1.GroupVersion
	all := fields.Everything()
	return []*kind{
		{name: kindNode, resource: "nodes", group: core, example: &corev1.Node{}, trim: trimNode,
			selector: fields.OneTermEqualSelector("metadata.name", node)},
		{name: apis.KindPod, resource: "pods", group: core, example: &corev1.Pod{}, trim: trimPod,
			selector: fields.OneTermEqualSelector("spec.nodeName", node)},
		{name: apis.KindNamespace, resource: "namespaces", group: core, selector: all,
			example: &corev1.Namespace{}, trim: trimNamespace},
		{name: apis.KindNetworkPolicy, resource: "networkpolicies", group: net, selector: all,
			example: &networkingv1.NetworkPolicy{}, trim: trimNetworkPolicy, isPolicy: true},
		{name: apis.KindPolicyEndpoint, resource: "policyendpoints", group: aws, selector: all,
			example: &v1alpha1.PolicyEndpoint{}, trim: trimPolicyEndpoint, custom: true, listsPods: true},
		{name: apis.KindClusterPolicyEndpoint, resource: "clusterpolicyendpoints", group: aws, selector: all,
			example: &v1alpha1.ClusterPolicyEndpoint{}, trim: trimClusterPolicyEndpoint, custom: true, listsPods: true},
		{name: apis.KindApplicationNetworkPolicy, resource: "applicationnetworkpolicies", group: aws, selector: all,
			example: &v1alpha1.ApplicationNetworkPolicy{}, trim: trimApplicationNetworkPolicy, custom: true, isPolicy: true},
		{name: apis.KindClusterNetworkPolicy, resource: "clusternetworkpolicies", group: aws, selector: all,
			example: &v1alpha1.ClusterNetworkPolicy{}, trim: trimClusterNetworkPolicy, custom: true, isPolicy: true},
	}
}
