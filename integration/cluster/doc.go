// Package cluster tests the built binaries on a real kube-apiserver with etcd: latchd under the
// ServiceAccount of conf/rbac.yaml, with the CRDs of conf/crds, on nodes of package harness. It is
// tests only.
//
// One control plane serves all tests, in a network namespace of its own. Each test has a namespace and
// nodes of its own; between a node and the control plane is a gate that can delay, hold back or cut
// requests. There is no kubelet here: a test binds a Pod to the node by its spec and calls the chain as
// the runtime would.
//
// The control plane's binaries are built once per machine by hack/parts/build-k8s.sh, see LATCH_PARTS.
package cluster
