package attach

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/rtnl"
)

const clsact = "clsact"

// ensureClsact makes the qdisc that our filters lie below, unless it is there. It refuses a qdisc of kind
// ingress: that one takes a filter for packets to the pod and runs it on packets from the pod.
func ensureClsact(c *rtnl.Conn, ifindex int) (made bool, err error) {
	_, err = c.Do(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, qdisc(ifindex), nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(clsact)))
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, unix.EEXIST) {
		return false, fmt.Errorf("add clsact: %w", err)
	}
	kind, err := ingressQdisc(c, ifindex)
	if err != nil {
		return false, err
	}
	if kind != clsact {
		return false, fmt.Errorf("%w: a qdisc of kind %q has the place of clsact", ErrConflict, kind)
	}
	return false, nil
}

// endClsact removes the qdisc if no filter is below it.
func endClsact(c *rtnl.Conn, ifindex int) error {
	kind, err := ingressQdisc(c, ifindex)
	if err != nil || kind != clsact {
		return err
	}
	for _, s := range Sides {
		left, err := c.Dump(unix.RTM_GETTFILTER, below(ifindex, s.hook()))
		if err != nil {
			return fmt.Errorf("list filters: %w", err)
		}
		if len(left) > 0 {
			return nil
		}
	}
	_, err = c.Do(unix.RTM_DELQDISC, 0, qdisc(ifindex), nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(clsact)))
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) { // absent
		return fmt.Errorf("delete clsact: %w", err)
	}
	return nil
}

func qdisc(ifindex int) *nl.TcMsg {
	return &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(ifindex), Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
}

// ingressQdisc returns the kind of the one qdisc that can be in the place of clsact, empty if there is
// none. It asks for that one: a dump would go through all devices of the node. A device that has lost
// its qdisc answers with the acknowledgement alone, one that never had one with ENOENT.
func ingressQdisc(c *rtnl.Conn, ifindex int) (string, error) {
	msgs, err := c.Do(unix.RTM_GETQDISC, unix.NLM_F_ECHO,
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(ifindex), Parent: netlink.HANDLE_CLSACT})
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find clsact: %w", err)
	}
	for _, m := range msgs {
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofTcMsg:])
		if err != nil {
			return "", fmt.Errorf("find clsact: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type == nl.TCA_KIND {
				return unix.ByteSliceToString(a.Value), nil
			}
		}
	}
	return "", nil
}
