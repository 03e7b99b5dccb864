package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyEndpoint is one chunk of a namespaced policy, with peers resolved to addresses. All chunks of
// one policyRef are one policy: a pod listed in any of them is governed by the rules of all.
type PolicyEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PolicyEndpointSpec `json:"spec,omitempty"`
}

// PolicyEndpointSpec is the content of a chunk.
type PolicyEndpointSpec struct {
	// PolicyRef has no kind: the owner references say whether it is a NetworkPolicy or an
	// ApplicationNetworkPolicy.
	PolicyRef PolicyReference `json:"policyRef"`
	// PodSelector is a copy made when the object was created. It is never updated.
	PodSelector          *metav1.LabelSelector     `json:"podSelector,omitempty"`
	PodIsolation         []networkingv1.PolicyType `json:"podIsolation,omitempty"`
	PodSelectorEndpoints []PodEndpoint             `json:"podSelectorEndpoints,omitempty"`
	Ingress              []EndpointInfo            `json:"ingress,omitempty"`
	Egress               []EndpointInfo            `json:"egress,omitempty"`
}

// PolicyReference names the policy that a PolicyEndpoint belongs to.
type PolicyReference struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// PodEndpoint is a selected pod somewhere in the cluster.
type PodEndpoint struct {
	HostIP    string `json:"hostIP"`
	PodIP     string `json:"podIP"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// EndpointInfo allows one peer: an address or a block less exceptions, or a domain name.
type EndpointInfo struct {
	CIDR       string   `json:"cidr,omitempty"`
	Except     []string `json:"except,omitempty"`
	DomainName string   `json:"domainName,omitempty"`
	Ports      []Port   `json:"ports,omitempty"`
}

// Port is one port, a range up to EndPort, or without a number a whole protocol.
type Port struct {
	Protocol *corev1.Protocol `json:"protocol,omitempty"`
	Port     *int32           `json:"port,omitempty"`
	EndPort  *int32           `json:"endPort,omitempty"`
}

// PolicyEndpointList is what the API server returns for a list.
type PolicyEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PolicyEndpoint `json:"items"`
}
