// Package view reads what is in force on a node: the kernel's objects, and the records that say what
// was meant. It serves people (latchctl) and whatever else wants to show the node's state.
//
// It stands beside the write path, never in it. Pins are opened for reading, the memory-mapped arrays
// are mapped for reading, no lock is taken but latchd's own, for an instant, to see that latchd holds
// it, and no file changes. So it works with latchd down and
// with a writer at work, and it works when objects are missing: what is missing is a finding.
//
// Invariants: the kernel's answer goes before the record's; where the two differ, both are told
// (Problem). Without the lock a reader may meet a writer half-way. So a slot's rules count as read
// only when their hash is the one that the slot's header names, and an attachment counts as out of
// order only when it stays so for a moment.
//
// The exported structs are what latchctl prints as JSON: their field names are an interface.
package view
