// Package reconcile brings the node's identifiers to the state that the world asks for.
//
// It is level-triggered: a queue of identifiers, workers that look up what is desired by then,
// compile it and call the one write path (shared/enforce) under the identifier's lock. An error puts
// the identifier back with backoff; nothing is logged and forgotten. The same function serves new
// policy, changed labels, adoption after a restart and the periodic audit.
//
// A pod's record is published only after its identifier is prepared, and under the locks of the
// identifier that it leaves and of the one that it gets: a plugin that waits for the lock reads the
// record again once it has it.
package reconcile
