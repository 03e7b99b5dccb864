// Package attach puts the node's two programs on host interfaces, replaces them, takes them off, and
// asks the kernel what an interface runs. It is the only package that turns the pod's direction into
// a hook of the device, and the only one that names those hooks.
//
// The host end of a veth receives what the pod sends. So:
//
//	side      packets            hook of the host device
//	from_pod  the pod's egress   ingress
//	to_pod    the pod's ingress  egress
//
// There are two ways. A clsact filter (one cls_bpf in direct action, on a priority and a handle of
// our own, replaced in place) attaches in half a millisecond on any kernel. A tcx link (kernel 6.6),
// pinned, at the head of the list, costs each packet about 140 ns less, but on a stock kernel
// attaching waits some 20 ms for RCU. Both let programs behind ours run: ours answer "next" or drop.
//
// Nothing is ever deleted before its replacement works. The package keeps no state and takes no lock;
// its callers hold the identifier's.
package attach
