// Package adopt tests that a node with running pods is taken over: pods that were made before latch was in
// the chain get their policy, what it allows goes on without a loss, and what it denies ends.
package adopt
