// Package identity makes the names that everything else is keyed by.
//
// An Identifier names the pods that no policy can tell apart: those of one namespace with equal
// labels. It names locks, records and slots, and both writers (plugin and latchd) reach it from what
// they know about a pod, so the same input must give the same identifier in every build. PodKey and
// AttachmentKey name record files.
//
// Invariants: every key is the SHA-256 of a length-prefixed encoding under a domain tag of its own, so
// that no two inputs are glued to the same bytes and no kind of key can stand for another; keys have a
// fixed length and consist of [0-9a-f] only, since bpffs refuses dots; a key is never taken apart.
//
// The package does no I/O and imports nothing of the project.
package identity
