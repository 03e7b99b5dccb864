// Package stage is what the reliability harness plays on: a node in a network namespace with latchd on
// a policy directory, an outside, and as many pods as a play asks for.
//
// A pod is a namespace with a veth, made here; the plugin is run on it as a runtime runs it, by any
// number of goroutines at once. Traffic is datagrams with crafted headers, each with a source port of
// its own, so that every one is a new flow and judged by the rules: what arrives is counted by pod and
// port. Port Always is allowed by every policy of a play and port Never by none, whatever version of it
// is in force: a datagram to Always that is lost, or one to Never that arrives, broke a promise.
//
// The package judges nothing and breaks nothing: the plays do.
package stage
