// Package install puts the CNI plugin on a node, keeps its place in the node's CNI configuration, and
// takes it away again.
//
// Runtimes use the lexically first configuration of their directory. Install writes one of its own that
// sorts first: the content of the primary CNI's (the first of the others), byte for byte, with latch as
// the last plugin. The primary's file is never touched, so its writer cannot remove us, and a node that
// starts without latchd finds everything on disk. A Follower, in latchd, keeps the file in step with
// the primary's however that is written: by rename, in place, by a symlink, by deletion. In-place mode
// puts the entry into the primary's file itself, for Multus and others that point at it by name; there
// the primary's writer can remove it, for the moment until the Follower sees that.
//
// Invariants:
//   - The runtime never finds a configuration without latch in own-file mode: the file is replaced by
//     rename, and the last good content stays while the primary's cannot be read.
//   - Without a primary the file stays, for the sake of DEL, and its entry has the key "disabled": the
//     plugin refuses ADD and says why. On a node that has had no primary yet the file refuses all.
//   - The plugin's binary is there before a configuration names it, and goes after.
//   - Nothing is written that is there already.
//
// Uninstall goes the other way round: configuration, attachments and pins (shared/cleanup), binary.
package install
