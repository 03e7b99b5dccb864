// Package statuspage serves the node's state as a page for a browser: pods, the policies in force on them,
// what was denied last. It shows what latchctl status and events show, by the same code, package view.
//
// It only reads, and it has no form, script or asset: one document that reloads itself. It is rendered
// once a second at most, whoever asks. It is off unless asked for, and on a loopback address unless told otherwise;
// there it answers to names of loopback only, so that a web site that makes its own name point there cannot
// have a browser read it.
package statuspage
