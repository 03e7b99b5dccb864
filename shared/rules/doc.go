// Package rules writes the flattened policy of an identifier into the kernel maps of its slot, and
// reads it back.
//
// It stands between the pure compiler (shared/policy) and the write path (shared/enforce), which
// alone calls its writing functions and holds the identifier's lock while it does.
//
// A slot is filled while nothing is bound to it (Fill), or changed while packets are looked up in it (Update). The
// look of a packet is many reads, between which any number of an update's writes may come. An update is therefore
// made only if every look depends on one of its writes at most (whole), so that it comes to the verdict of the old or
// of the new rules: prefixes come and go, none of them within another, or the result of a miss changes. All else is
// ErrRebuild, and the caller fills another slot. Port sets are written before the first rule that names them. What
// comes is written before what goes, and the caller waits between two updates of a slot (Frees): memory that goes is
// used again at once. The writes are planned and judged by pure functions, so that a model test can take every look
// that they may come in between of.
//
// The package does not allocate slots, does not touch pod_state and keeps no cache: what it needs
// to know about the kernel's content the caller gets from Read, or keeps from the last Fill or
// Update together with the hash that proves it is still what the kernel holds.
package rules
