// Package testenv is the ground that tests of the kernel stand on: network namespaces, veths, a bpffs,
// packets and sockets, all made fresh for one test and gone after it. Only tests import it.
//
// Invariants: both ends of everything lie in fresh namespaces, never in the machine's own; what a test
// makes is removed by t.Cleanup, and Main names the leak otherwise; a test that lacks its ground is
// skipped with a reason on a developer's machine and fails when CI=true.
package testenv
