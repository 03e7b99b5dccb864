// Package adopt finds what is needed to take over a pod that ran before Latch knew it: the host interfaces
// through which its traffic passes, and its live flows.
//
// Interfaces are found by facts of the kernel, never by names: the route to each of the pod's addresses is
// one to that very address, and leads to a veth whose other end is in another network namespace. Every
// address needs one; else the pod cannot be adopted, since part of its traffic would pass unseen. Whatever
// else leads into the same sandbox, and is no port of a bridge, is the pod's as well.
//
// Flows come from the kernel's connection tracking, of which Shared has one list serve many, as the pod sees them: before the node translates what
// the pod sends, and after it has translated what it receives. A node without connection tracking has none,
// which is no error.
//
// Sandboxes is for who only has to know whether pods run at all.
//
// The package changes nothing: package reconcile decides, package enforce writes.
package adopt
