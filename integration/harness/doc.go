// Package harness runs the product's real binaries as a node would: a network namespace is the
// node, libcni executes a real chain of plugins in it, latchd follows a directory of manifests, and
// pods are namespaces that the chain connects.
//
// The parts, from the inside out: NetNS is a namespace with a thread that stays in it; Build makes
// the binaries once per process; Node ties a namespace, a bpffs of its own, a state directory and a
// policy directory together; AddPod and DelPod run the chain; Eventually waits with a deadline.
//
// Everything here returns errors instead of taking a testing.T, since the conformance runner is a
// program. Node.Stop removes all that the node made and reports whatever it finds left over.
//
// The package knows nothing of policy and sends no packets: see integration/probe for those.
package harness
