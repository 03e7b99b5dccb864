package v1alpha1

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ApplicationNetworkPolicy is a namespaced policy whose egress peers may be domain names. Its rules
// arrive as PolicyEndpoints.
type ApplicationNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ApplicationNetworkPolicySpec `json:"spec,omitempty"`
}

// ApplicationNetworkPolicySpec is the part that says which pods the policy isolates.
type ApplicationNetworkPolicySpec struct {
	PodSelector metav1.LabelSelector      `json:"podSelector"`
	PolicyTypes []networkingv1.PolicyType `json:"policyTypes,omitempty"`
	// Egress tells whether there are egress rules; their content comes from PolicyEndpoints.
	Egress []struct{} `json:"egress,omitempty"`
	// Ingress is known, so that nobody takes it for a misspelt egress. It is not read.
	Ingress []struct{} `json:"ingress,omitempty"`
}

// ApplicationNetworkPolicyList is what the API server returns for a list.
type ApplicationNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ApplicationNetworkPolicy `json:"items"`
}

// ClusterNetworkPolicy is a cluster-wide policy. Its rules arrive as ClusterPolicyEndpoints.
type ClusterNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterNetworkPolicySpec `json:"spec,omitempty"`
}

// ClusterNetworkPolicySpec is the part that says which pods the policy is about and how it ranks.
type ClusterNetworkPolicySpec struct {
	Tier     Tier                `json:"tier"`
	Priority int32               `json:"priority"`
	Subject  Subject             `json:"subject"`
	Ingress  []ClusterPolicyRule `json:"ingress,omitempty"`
	Egress   []ClusterPolicyRule `json:"egress,omitempty"`
}

// ClusterPolicyRule is what is known of a rule while it is not resolved to addresses.
type ClusterPolicyRule struct {
	Action Action `json:"action"`
}

// Subject selects pods: exactly one of its fields is set.
type Subject struct {
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	Pods       *NamespacedPod        `json:"pods,omitempty"`
}

// NamespacedPod selects pods by the labels of their namespace and their own.
type NamespacedPod struct {
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`
	PodSelector       metav1.LabelSelector `json:"podSelector"`
}

// ClusterNetworkPolicyList is what the API server returns for a list.
type ClusterNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterNetworkPolicy `json:"items"`
}
