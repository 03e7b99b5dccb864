package attach

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const clsact = "clsact"

// ensureClsact makes the qdisc that our filters lie below, unless it is there. It refuses a qdisc of kind
// ingress: that one takes a filter for packets to the pod and runs it on packets from the pod.
func ensureClsact(i *Interface) error {
	if len(i.bare) > 0 { // made for the other side
		return nil
	}
	_, err := i.c.Do(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL, qdisc(i.ifindex), nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(clsact)))
	if err == nil {
		i.bare = map[hook]bool{FromPod.hook(): true, ToPod.hook(): true}
		return nil
	}
	if !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact: %w", err)
	}
	kind, err := ingressQdisc(i)
	if err != nil {
		return err
	}
	if kind != clsact {
		return fmt.Errorf("%w: a qdisc of kind %q has the place of clsact", ErrConflict, kind)
	}
	return nil
}

// endClsact removes the qdisc if no filter is below it.
func endClsact(i *Interface) error {
	kind, err := ingressQdisc(i)
	if err != nil || kind != clsact {
		return err
	}
	for _, s := range Sides {
		left, err := i.c.Dump(unix.RTM_GETTFILTER, below(i.ifindex, s.hook()))
		if err != nil {
			return fmt.Errorf("list filters: %w", err)
		}
		if len(left) > 0 {
			return nil
		}
	}
	i.bare = nil
	_, err = i.c.Do(unix.RTM_DELQDISC, 0, qdisc(i.ifindex), nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(clsact)))
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
func ingressQdisc(i *Interface) (string, error) {
	msgs, err := i.c.Do(unix.RTM_GETQDISC, unix.NLM_F_ECHO,
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(i.ifindex), Parent: netlink.HANDLE_CLSACT})
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
