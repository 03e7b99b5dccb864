package attach

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The one place where the pod's direction becomes a hook of the device: see the package comment.

func (s Side) tcxHook() ebpf.AttachType {
	if s == FromPod {
		return ebpf.AttachTCXIngress
	}
	return ebpf.AttachTCXEgress
}

func (s Side) clsactParent() uint32 {
	if s == FromPod {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

// gone turns the kernel's ways to say that a device is no longer there into ErrGone.
func gone(err error) error {
	var none netlink.LinkNotFoundError
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOLINK) || errors.Is(err, unix.ENXIO) || errors.As(err, &none) {
		return errors.Join(ErrGone, err)
	}
	return err
}

// isUnknownHook tells whether the kernel does not know tcx: it answers an unknown attach type with
// EINVAL.
func isUnknownHook(err error) bool { return errors.Is(err, unix.EINVAL) }
