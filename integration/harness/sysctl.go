package harness

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// quietIPv6 leaves out duplicate address detection, which takes a second per address and proves
// nothing on a link of two ends, and router solicitations.
var quietIPv6 = map[string]string{
	"net/ipv6/conf/all/accept_dad":               "0",
	"net/ipv6/conf/default/accept_dad":           "0",
	"net/ipv6/conf/all/dad_transmits":            "0",
	"net/ipv6/conf/default/dad_transmits":        "0",
	"net/ipv6/conf/all/accept_ra":                "0",
	"net/ipv6/conf/default/accept_ra":            "0",
	"net/ipv6/conf/default/router_solicitations": "0",
}

var forwarding = map[string]string{
	"net/ipv4/ip_forward":              "1",
	"net/ipv6/conf/all/forwarding":     "1",
	"net/ipv6/conf/default/forwarding": "1",
	"net/ipv4/conf/all/rp_filter":      "2",
	"net/ipv4/conf/default/rp_filter":  "2",
}

// sysctl writes settings below net/, which the kernel takes as those of the calling thread's
// namespace.
func sysctl(values map[string]string) error {
	for key, value := range values {
		if err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0); err != nil {
			return fmt.Errorf("set sysctl %s: %w", key, err)
		}
	}
	return nil
}

// setUpLoopback sets loopback up and gives it addresses.
func setUpLoopback(addrs ...netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	for _, a := range addrs {
		if err := addAddrs(lo, netip.PrefixFrom(a, a.BitLen())); err != nil {
			return err
		}
	}
	return nil
}

// addAddrs adds addresses that are usable when this returns. Safe to call again.
func addAddrs(link netlink.Link, addrs ...netip.Prefix) error {
	for _, p := range addrs {
		addr, err := netlink.ParseAddr(p.String())
		if err != nil {
			return fmt.Errorf("parse address: %w", err)
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrReplace(link, addr); err != nil {
			return fmt.Errorf("add %v to %s: %w", p, link.Attrs().Name, err)
		}
	}
	return nil
}
