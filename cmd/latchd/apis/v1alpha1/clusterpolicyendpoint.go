package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterPolicyEndpoint is one chunk of a ClusterNetworkPolicy.
type ClusterPolicyEndpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterPolicyEndpointSpec `json:"spec,omitempty"`
}

// ClusterPolicyEndpointSpec is the content of a chunk. Tier, priority and subject are equal in all
// chunks of a policy.
type ClusterPolicyEndpointSpec struct {
	PolicyRef            ClusterPolicyReference `json:"policyRef"`
	Tier                 Tier                   `json:"tier"`
	Priority             int32                  `json:"priority"`
	Subject              *Subject               `json:"subject,omitempty"`
	PodSelectorEndpoints []PodEndpoint          `json:"podSelectorEndpoints,omitempty"`
	Ingress              []ClusterEndpointInfo  `json:"ingress,omitempty"`
	Egress               []ClusterEndpointInfo  `json:"egress,omitempty"`
}

// ClusterPolicyReference names the ClusterNetworkPolicy that a chunk belongs to.
type ClusterPolicyReference struct {
	Name string `json:"name"`
}

// ClusterEndpointInfo decides about one peer. It knows no exceptions.
type ClusterEndpointInfo struct {
	CIDR       string `json:"cidr,omitempty"`
	DomainName string `json:"domainName,omitempty"`
	Ports      []Port `json:"ports,omitempty"`
	Action     Action `json:"action"`
}

// Tier says whether a cluster policy is asked before or after namespaced policies.
type Tier string

// Tiers.
const (
	TierAdmin    Tier = "Admin"
	TierBaseline Tier = "Baseline"
)

// Action of a rule of a cluster policy.
type Action string

// Actions.
const (
	ActionAccept Action = "Accept"
	ActionDeny   Action = "Deny"
	ActionPass   Action = "Pass"
)

// ClusterPolicyEndpointList is what the API server returns for a list.
type ClusterPolicyEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterPolicyEndpoint `json:"items"`
}
