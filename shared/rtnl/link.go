package rtnl

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// skipStats keeps counters out of answers: RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h.
const skipStats = 1 << 3

// Link is a device.
type Link struct {
	Index    int
	Name     string
	Kind     string // veth, bridge, ...; empty for hardware and loopback
	Up       bool
	Loopback bool

	Peer   int // ifindex of the other end, or of the device below, in PeerNS
	PeerNS int // id of that namespace as this one counts; -1 = this one, or not known
}

// Links lists the devices.
func (c *Conn) Links() ([]Link, error) {
	answers, err := c.Dump(unix.RTM_GETLINK, nl.NewIfInfomsg(unix.AF_UNSPEC), withoutStats())
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	links := make([]Link, len(answers))
	for i, m := range answers {
		if links[i], err = parseLink(m); err != nil {
			return nil, fmt.Errorf("list links: %w", err)
		}
	}
	return links, nil
}

// Link returns one device. The error wraps unix.ENODEV when there is none with this index.
func (c *Conn) Link(index int) (Link, error) {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	answers, err := c.Do(unix.RTM_GETLINK, 0, msg, withoutStats())
	if err == nil && len(answers) == 0 {
		err = unix.ENODEV
	}
	if err != nil {
		return Link{}, fmt.Errorf("get link %d: %w", index, err)
	}
	return parseLink(answers[0])
}

// Name returns the name of a device, without waiting for the rtnl lock as requests do: SIOCGIFNAME takes
// another one. The error wraps unix.ENODEV when there is none with this index.
func (c *Conn) Name(index int) (string, error) {
	req, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	req.SetUint32(uint32(index))
	if err := unix.IoctlIfreq(c.fd, unix.SIOCGIFNAME, req); err != nil {
		return "", fmt.Errorf("get name of link %d: %w", index, err)
	}
	return req.Name(), nil
}

func withoutStats() *nl.RtAttr { return nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)) }

func parseLink(m []byte) (Link, error) {
	if len(m) < unix.SizeofIfInfomsg {
		return Link{}, fmt.Errorf("answer of %d bytes", len(m))
	}
	msg := nl.DeserializeIfInfomsg(m)
	l := Link{Index: int(msg.Index), Up: msg.Flags&unix.IFF_UP != 0, Loopback: msg.Flags&unix.IFF_LOOPBACK != 0, PeerNS: -1}
	attrs, err := nl.ParseRouteAttr(m[unix.SizeofIfInfomsg:])
	if err != nil {
		return Link{}, err
	}
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.IFLA_IFNAME:
			l.Name = unix.ByteSliceToString(a.Value)
		case unix.IFLA_LINK:
			l.Peer = int(nl.NativeEndian().Uint32(a.Value))
		case unix.IFLA_LINK_NETNSID:
			l.PeerNS = int(int32(nl.NativeEndian().Uint32(a.Value)))
		case unix.IFLA_LINKINFO:
			info, err := nl.ParseRouteAttr(a.Value)
			if err != nil {
				return Link{}, err
			}
			for _, i := range info {
				if i.Attr.Type == nl.IFLA_INFO_KIND {
					l.Kind = unix.ByteSliceToString(i.Value)
				}
			}
		}
	}
	return l, nil
}

// Addrs lists the own addresses of the devices, by ifindex.
func (c *Conn) Addrs() (map[int][]netip.Addr, error) {
	answers, err := c.Dump(unix.RTM_GETADDR, nl.NewIfInfomsg(unix.AF_UNSPEC))
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	found := map[int][]netip.Addr{}
	for _, m := range answers {
		if len(m) < unix.SizeofIfAddrmsg {
			return nil, fmt.Errorf("list addresses: answer of %d bytes", len(m))
		}
		attrs, err := nl.ParseRouteAttr(m[unix.SizeofIfAddrmsg:])
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		var own []byte
		for _, a := range attrs {
			// On a point-to-point link IFA_ADDRESS is the other end's.
			if a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS && own == nil {
				own = a.Value
			}
		}
		if addr, ok := netip.AddrFromSlice(own); ok {
			index := int(nl.DeserializeIfAddrmsg(m).Index)
			found[index] = append(found[index], addr.Unmap())
		}
	}
	return found, nil
}

// NamespaceID returns the id by which this namespace counts the one that the descriptor stands for, -1 if
// it has none.
func (c *Conn) NamespaceID(netns int) (int, error) {
	answers, err := c.Do(unix.RTM_GETNSID, 0, nl.NewRtGenMsg(), nl.NewRtAttr(netlink.NETNSA_FD, nl.Uint32Attr(uint32(netns))))
	if err != nil {
		return 0, fmt.Errorf("get id of a network namespace: %w", err)
	}
	for _, m := range answers {
		attrs, err := nl.ParseRouteAttr(m[nl.NewRtGenMsg().Len():])
		if err != nil {
			return 0, fmt.Errorf("get id of a network namespace: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type == netlink.NETNSA_NSID {
				return int(int32(nl.NativeEndian().Uint32(a.Value))), nil
			}
		}
	}
	return 0, errors.New("get id of a network namespace: no answer")
}
