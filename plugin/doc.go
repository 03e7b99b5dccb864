// Package plugin is the CNI side of Latch: the verbs that a container runtime calls, chained behind
// the plugin that made the pod's interface.
//
// ADD is where a pod gets its policy. The plugin finds the host end of every interface that the
// plugins before it made (prevResult, confirmed by the kernel), waits a bounded time until latchd has
// published which identifier the pod has, and hands both to shared/enforce, the one write path. It
// prints prevResult unchanged, and only after the kernel has confirmed that both directions are under
// enforcement. DEL, CHECK and GC work from the attachment's record, by container id and interface
// name, never by pod name: a late DEL of an old sandbox cannot touch its successor.
//
// Invariants:
//   - No verb returns success with an interface that is not filtered. What cannot be enforced (an
//     interface without a host veth, no policy known, a lock not obtained) is an error with a CNI code:
//     7 for the configuration, 4 for the environment, 11 where trying again later can help, else 999.
//   - DEL succeeds when there is nothing left to remove, whatever is missing around it.
//   - Nothing but the result, or the error as JSON, is written to stdout.
//   - A failed ADD takes back what it had applied.
//
// Pods on the host's network never get a CNI call, so nothing here knows about them. That is also why
// latchd, which runs on the host's network, never waits for itself.
//
// The package compiles no policy, talks to no API server, and links neither client-go nor anything
// else that is slow to start: it runs once per pod.
package plugin
