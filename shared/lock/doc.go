// Package lock keeps the two writers apart: one flock file per identifier, and one for the node.
//
// Whoever changes the kernel's state of an identifier holds its lock; functions that do so take the
// *Held that only this package makes, so that a forgotten lock does not compile. The node lock covers
// program load and slot allocation only, and is taken while identifier locks are held, never the
// other way round.
//
// Invariants:
//   - At most one holder per identifier, among all processes and goroutines of the node. The kernel
//     ends the lock with the process, so a killed holder blocks nobody.
//   - flock is on the inode: a lock file is removed by its holder only, and whoever gets a lock
//     compares its inode with the path and starts again if they differ.
//   - Several locks are taken in sorted order, so that holders of several cannot wait in a circle.
//   - A wait bounds the waiting, for all locks of one call together, and never the work.
//
// A goroutine that asks for a lock it already holds waits for itself until the time is up: take all
// identifiers in one call. The package knows nothing about what the locks protect.
package lock
