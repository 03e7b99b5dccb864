// Package regress plays what has gone wrong in the field, on the built binaries and a real kernel: one
// file per scenario, verdicts by real packets. It is tests only.
//
// Every test has a ground of its own: a node and its outside in network namespaces (testenv.Ground),
// pods that are connected as the VPC CNI does it, latch run as a runtime runs it, latchd on a directory
// of manifests. Policies and packets are written in two small notations, see policy_test.go and
// table_test.go.
//
// A denied packet is one that did not arrive and that was counted as a drop; each denial has its
// positive control. When a test ends, everything is deleted by DEL and by the manifests' going, and
// whatever is then left of it, in the kernel or on disk, fails the test.
//
// R13 d, builds of two layouts of pins and back, is TestNextLayout of integration/soak; R13 e and f, an API
// server that hangs, are played in integration/cluster besides.
package regress
