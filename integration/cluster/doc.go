// Package cluster tests the built binaries on a real kube-apiserver with etcd: latchd under the
// ServiceAccount of conf/rbac.yaml, with the CRDs of conf/crds, on nodes of package harness. It is
// tests only.
//
// One control plane serves all tests, in a network namespace of its own. Each test has a namespace and
// nodes of its own; between a node and the control plane is a gate that can delay, hold back or cut
// requests. Most tests have no kubelet: they bind a Pod to the node by its spec and call the chain as the
// runtime would. TestKubelet has one, with containerd and runc, and a user with kubectl, who installs and
// uninstalls conf/ with the image of the Dockerfile.
//
// The parts are built once per machine by the scripts of hack/parts, in CI by the tests themselves, below
// the folder that LATCH_PARTS names. LATCH_REPLACEMENTS is how often TestCluster/replace replaces a pod,
// in sum of the DaemonSets that it has at work together.
package cluster
