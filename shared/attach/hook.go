package attach

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// Side is the way of the packets that a program sees, in the pod's view.
type Side uint8

// Sides of a host interface.
const (
	ToPod   Side = iota // into the pod: its ingress
	FromPod             // out of the pod: its egress
)

// Sides lists both, for loops.
var Sides = [2]Side{ToPod, FromPod}

// String is the name of the side in pins, programs and logs.
func (s Side) String() string {
	switch s {
	case ToPod:
		return "to_pod"
	case FromPod:
		return "from_pod"
	default:
		return fmt.Sprintf("side %d", uint8(s))
	}
}

// hook is a place of a device where programs run, in TC's words.
type hook struct {
	parent uint32          // of filters below the clsact qdisc
	tcx    ebpf.AttachType // of links
}

// hook is the one place where the pod's view turns into the device's:
//
//	side      packets                      hook of the host device
//	to_pod    the device transmits them    egress
//	from_pod  the device receives them     ingress
func (s Side) hook() hook {
	switch s {
	case ToPod:
		return hook{parent: netlink.HANDLE_MIN_EGRESS, tcx: ebpf.AttachTCXEgress}
	case FromPod:
		return hook{parent: netlink.HANDLE_MIN_INGRESS, tcx: ebpf.AttachTCXIngress}
	default:
		panic("attach: " + s.String())
	}
}
