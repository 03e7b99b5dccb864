// Package install tests how Latch comes onto a node and leaves it, with the built binaries: a runtime
// that takes its configuration from a folder, a primary CNI that rewrites that, latchd install and
// uninstall, another policy agent that is taken over from, and latchd with no more capabilities than
// its manifest asks for.
package install
