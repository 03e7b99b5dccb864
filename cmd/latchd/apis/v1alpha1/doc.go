// Package v1alpha1 holds the objects of group networking.k8s.aws/v1alpha1 that the node watcher reads:
// PolicyEndpoint and ClusterPolicyEndpoint, which carry rules resolved to addresses, and
// ApplicationNetworkPolicy and ClusterNetworkPolicy, of which only the selectors matter here.
//
// Only fields that the watcher uses are declared; unknown fields of an object are dropped while
// decoding. The types are read-only for us, so there are no defaults, no validation and no status.
// They register with a runtime.Scheme and serve a client-go REST client.
package v1alpha1
