// Package state keeps what both writers must remember about a node, as one JSON file per record.
//
//	<state>/pods/<pod key>.json            latchd says: who a pod is, before its ADD
//	<state>/attachments/<key>.json         the write path says: what is enforced, or meant to be
//	<state>/identifiers/<identifier>.json  the write path says: what an identifier's slots hold
//	<state>/node.json                      latchd says: settings of the node
//	<state>/status.json                    latchd says: how it is
//	<state>/failures/<pod key>.json        the plugin says: an ADD failed, and why, until latchd has read it
//	<state>/manifests/<directory>/<file>   latchd says: what a file of a policy directory said last
//	<state>/locks/                         lock files of package lock
//
// Invariants: a file appears and changes whole, by rename, so that a reader needs no lock; a record is
// what was meant, the kernel is what is: whoever acts on a record asks the kernel as well; names of
// files come from package identity and are never taken apart; unknown fields are ignored, so that an
// older build reads what a newer one wrote; a record that cannot be read is an error that names its
// file, and hides no other record.
//
// The folder lies on a tmpfs: records end with a reboot, as kernel objects do. The package takes no
// locks; attachments and identifiers are written by shared/enforce only.
package state
