// Package attach puts programs on the two hooks of a host interface, and tells what is there.
//
// It is the only place that knows which hook is which. The host end of a veth receives what the pod
// sends, so the sides are the other way round than the hooks: from_pod (egress of the pod) is the
// ingress hook of the device, to_pod (ingress of the pod) its egress hook.
//
// There are two ways to attach. clsact is a filter with direct action at priority 1, under handles of
// our own: half a millisecond. tcx (kernel 6.6) is a pinned link at the head: cheaper for every packet,
// but it waits for a grace period of RCU.
//
// Invariants:
//   - Make before break: whatever changes (program, way, place), the new one is on the hook before the
//     old one leaves it.
//   - First or not at all: a program in front of us that accepts ends the chain, so Attach gets in
//     front or returns ErrConflict, and Query looks at the order. What runs after us is no concern:
//     allowing is "next" in both ways.
//   - The kernel is asked each time; nothing is remembered.
//
// Facts of the kernel that this stands on, each tested here with packets: tcx programs run before
// filters of clsact; at one priority the filter added last runs first, and a dump shows the order in
// which filters run; replacing a filter in place keeps its place; a tcx program
// that does not return -1 ("next") ends the list; a qdisc of kind ingress has the place of clsact, takes filters for either side and runs
// them all on its one hook.
//
// Callers hold the lock of the interface's identifier, and are in the network namespace of the
// interface. The package knows nothing about maps, slots or records.
package attach
