// Package announce tells Kubernetes how the node's pods stand: by Events on pods and policies, and, if it is
// asked to, by a condition of each pod.
//
// # Events
//
// What lasts is announced when it has been there for a while, and again once in a time for as long as it is
// there, since the API server forgets events; what has gone is announced once. Repairs and failed ADDs are
// announced as they happen. Events are aggregated and limited per object by client-go's recorder, and all
// together by the rate limit of their client; what is too much is dropped. A policy is one object for all
// nodes: an event about it has a name made of what it says, so that the first node writes it for all.
//
// # The condition
//
// PolicyEnforced is True while, by what the kernel was last asked, the pod is judged by the newest policy that
// is known. It becomes True only when nothing is open, and False when something has been for a second: a change
// that is in force within that time is not written to and fro. Without latchd it stays as it is, as
// enforcement does.
//
// Nothing depends on the package; it changes nothing on the node.
package announce
