// Package integration tests the built binaries end to end: real chains through libcni, real packets.
//
// Its packages are the ground: harness makes nodes and pods, probe sends packets, scenario reads
// conformance cases, runner plays them, and conformance is the runner as a command.
package integration
