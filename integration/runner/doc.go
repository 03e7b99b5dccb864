// Package runner plays conformance scenarios on nodes of the harness and compares every verdict.
//
// Scenarios with the same pods run one after the other on the same sandboxes; only manifests change
// between them. Each begins on ground without policies, where everything must reach everything, so no
// scenario inherits from the one before and every denial later has its positive control. Then each
// step is fed to latchd as one file replaced by rename, pods that appeared are added and pods that
// disappeared are deleted through the real chain, and the whole matrix is probed until it is as
// expected, and once more, carefully, to be sure.
//
// Beside what the tables assert, the node must reach every pod and every pod its node on every
// probed port, whatever the policies say.
//
// A verdict that is right only for a moment does not pass: no step is judged before Settle is over,
// which is longer than any delay by which latchd puts off a change on purpose. A verdict that never
// becomes right fails after Patience, together with what the compiler says about it.
package runner
