// Package enforce is the one way into the kernel: the only code that changes maps, links, pins and
// records. The plugin and the watcher call the same functions with the same types.
//
// # The write path
//
// Apply brings one identifier to its desired state, in this order, under the identifier's lock:
//
//	intent     record what is about to be bound
//	rules      write the rules into the identifier's slot, or into a spare one
//	slot       mark the slot complete: generation, hash of the rules
//	pod_state  bind each interface to its slot: the act of enforcement
//	seed       record the live flows of pods that run already and are adopted
//	attach     put both programs on each interface; on adopted ones side by side, with flows seeded in between
//	verify     ask the kernel whether all of this is so
//	record     note that it is
//
// Every step is idempotent. A writer may be killed after any of them: an interface is bound before
// it is attached and a program without pod_state drops, so the pod is enforced or absent, never
// open; the next holder of the lock finishes what was left. Remove goes the other way round, but
// for one thing: it does not take the program off an interface that is still there, it takes away
// the pod_state, so that a sandbox on its way out is closed and not open.
//
// # Two slots for one identifier
//
// A pod being created gets everything known at once; a running pod is isolated by a new policy
// only when the policy has settled, and keeps what it has while a policy's rules are missing. As
// long as the two differ the identifier has two slots, Create and Running. Each pod stays with the
// slot it was bound to until the two are one again.
//
// # Invariants
//
//   - A slot's rules_hash is zero from before the first write of a change until after the last. A
//     slot without a hash takes no new pod.
//   - Nothing is decided from memory that the kernel has not confirmed: the cached content of a
//     slot is used only while the slot's hash says that it is what the kernel holds, and open maps
//     only while the pins still name them.
//   - A freed slot, a deleted rule's memory and a freed port set are not reused before every program
//     that may be reading them has ended.
//
// The package does not know where policy comes from and does not wait for it.
package enforce
