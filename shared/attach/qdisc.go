package attach

import (
	"errors"
	"fmt"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const clsact = "clsact"

// ensureClsact makes the qdisc that our filters lie below. It refuses a qdisc of kind ingress: that one
// takes a filter for packets to the pod and runs it on packets from the pod.
func ensureClsact(ifindex int) error {
	err := netlink.QdiscAdd(qdisc(ifindex))
	if !errors.Is(err, unix.EEXIST) {
		if err != nil {
			return fmt.Errorf("add clsact: %w", err)
		}
		return nil
	}
	kind, err := ingressQdisc(ifindex)
	if err != nil {
		return err
	}
	if kind != clsact {
		return fmt.Errorf("%w: a qdisc of kind %q has the place of clsact", ErrConflict, kind)
	}
	return nil
}

// endClsact removes the qdisc if no filter is below it.
func endClsact(ifindex int) error {
	kind, err := ingressQdisc(ifindex)
	if err != nil || kind != clsact {
		return err
	}
	for _, s := range Sides {
		left, err := netlinksafe.FilterList(device(ifindex), s.hook().parent)
		if err != nil {
			return fmt.Errorf("list filters: %w", err)
		}
		if len(left) > 0 {
			return nil
		}
	}
	err = netlink.QdiscDel(qdisc(ifindex))
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) { // absent
		return fmt.Errorf("delete clsact: %w", err)
	}
	return nil
}

func qdisc(ifindex int) netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  clsact,
	}
}

// ingressQdisc returns the kind of the one qdisc that can be in the place of clsact, empty if there is
// none. It asks for that one: a dump would go through all devices of the node. A device that has lost
// its qdisc answers with the acknowledgement alone, one that never had one with ENOENT.
func ingressQdisc(ifindex int) (string, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_ECHO|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(ifindex), Parent: netlink.HANDLE_CLSACT})
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
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
