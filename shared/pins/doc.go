// Package pins knows where kernel objects are pinned, and how a pin is made, replaced and opened.
//
// All paths lie below a base folder on a bpffs, so that tests use one of their own:
//
//	<bpffs>/latch/v<layout>/<map>
//	<bpffs>/latch/v<layout>/prog/<program>
//	<bpffs>/latch/v<layout>/link/<pod id>_<side>
//
// Invariants: names consist of [a-z0-9_] only (bpffs refuses dots) and are never taken apart again; a
// pin is replaced by rename, so that there is no moment without one; a change of any map's key or value
// is a new layout beside the old one, never an edit in place.
//
// The package takes no locks: programs and maps are pinned under the node lock, links under that of
// their identifier. It does not know what the objects are for.
package pins
