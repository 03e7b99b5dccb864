package view

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/latch-cni/latch/shared/policy"
)

// toNode says what becomes of a new flow of a pod to an address of its own node that the pod's rules deny:
// it passes if it is for the node itself, as the programs find out (D8). note says why not, or on what it
// depends.
func toNode(to netip.Addr, port Port) (passes bool, note string, err error) {
	switch port.Protocol {
	case policy.SCTP:
		return true, "", nil
	case icmp, icmpv6:
		return true, "errors about packets of others are judged by policy", nil
	case policy.TCP, policy.UDP:
	default:
		return false, fmt.Sprintf("%v is of this node, and %s is for a tunnel: policy decides", to, port), nil
	}
	own, dual, err := listens(to, port)
	switch {
	case err != nil:
		return false, "", err
	case own:
		return true, fmt.Sprintf("a socket of the node takes %s; without one policy would decide", port), nil
	case dual:
		return true, fmt.Sprintf("a socket of the node on [::]:%d takes it, unless that is for IPv6 only: then policy decides", port.Number), nil
	}
	return false, fmt.Sprintf("%v is of this node, and no socket of the node takes %s now: it is a node port or nobody's, and policy decides", to, port), nil
}

// listens tells whether a socket in the caller's network namespace is open for anybody at an address and
// port; dual is one for every address of IPv6, which mostly takes IPv4, too.
func listens(to netip.Addr, port Port) (own, dual bool, err error) {
	name, state := "tcp", "0A" // LISTEN
	if port.Protocol == policy.UDP {
		name, state = "udp", "07" // not connected
	}
	for _, suffix := range []string{"", "6"} {
		f, err := os.Open("/proc/thread-self/net/" + name + suffix)
		if errors.Is(err, os.ErrNotExist) && suffix != "" {
			continue // a kernel without IPv6
		}
		if err != nil {
			return false, false, fmt.Errorf("look for sockets of the node: %w", err)
		}
		for scan := bufio.NewScanner(f); scan.Scan(); {
			fields := strings.Fields(scan.Text())
			if len(fields) < 4 || fields[3] != state {
				continue
			}
			at, number, ok := socketAddr(fields[1])
			switch {
			case !ok || number != port.Number:
			case at.Unmap() == to, at.IsUnspecified() && at.Is4() == to.Is4():
				own = true
			case at.IsUnspecified() && to.Is4():
				dual = true
			}
		}
		_ = f.Close()
	}
	return own, dual, nil
}

// socketAddr reads an address and port as the kernel prints them: each 32 bits of the address in the
// machine's order.
func socketAddr(s string) (netip.Addr, uint16, bool) {
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	number, err2 := strconv.ParseUint(port, 16, 16)
	if err != nil || err2 != nil || len(raw)%4 != 0 {
		return netip.Addr{}, 0, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return addr, uint16(number), ok
}
