package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
)

const (
	cniVersion  = "1.1.0"
	networkName = "latch-test"
	podIfName   = "eth0"
)

type object = map[string]any

// chain is the conflist for one pod: a point-to-point link, with the pod's exact addresses unless
// host-local gives one, routed by the node without any translation, then latch. The gateway is the
// node's own address, which ptp puts on every host veth: so the node talks to pods from the address
// that is known as its own.
func (n *Node) chain(p Pod) (*libcni.NetworkConfigList, error) {
	plugins := []any{object{"type": "ptp", "ipam": n.ipam(p)}}
	plugins = append(plugins, n.cfg.Between...)
	if !n.cfg.WithoutLatch {
		plugins = append(plugins, n.latchEntry())
	}
	return conflist(plugins)
}

func conflist(plugins []any) (*libcni.NetworkConfigList, error) {
	raw, err := json.Marshal(object{"cniVersion": cniVersion, "name": networkName, "plugins": plugins})
	if err != nil {
		return nil, fmt.Errorf("write conflist: %w", err)
	}
	list, err := libcni.NetworkConfFromBytes(raw)
	if err != nil {
		return nil, fmt.Errorf("read conflist: %w", err)
	}
	return list, nil
}

func (n *Node) latchEntry() object {
	entry := object{"type": "latch", "stateDir": n.StateDir, "bpffs": n.Bpffs, "logFile": n.LatchLog}
	maps.Copy(entry, n.cfg.LatchEntry)
	return entry
}

func (n *Node) ipam(p Pod) object {
	if subnet := n.cfg.HostLocal; subnet.IsValid() {
		return object{"type": "host-local", "dataDir": filepath.Join(n.Dir, "ipam"), "routes": []object{{"dst": "0.0.0.0/0"}},
			"ranges": []any{[]any{object{"subnet": subnet.Masked().String(), "rangeStart": subnet.Addr().String(),
				"gateway": n.addr(true).String()}}}}
	}
	var addresses, routes []object
	for _, a := range p.Addrs {
		gateway := n.addr(a.Is4())
		addresses = append(addresses, object{"address": onLink(a, gateway).String(), "gateway": gateway.String()})
		all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if a.Is4() {
			all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		routes = append(routes, object{"dst": all.String()})
	}
	return object{"type": "static", "addresses": addresses, "routes": routes}
}

// onLink is the address with the longest usual prefix that has the gateway inside, since ptp adds
// the routes before the one to the gateway.
func onLink(a, gateway netip.Addr) netip.Prefix {
	bits := 64
	if a.Is4() {
		bits = 16
	}
	for bits > 0 && !netip.PrefixFrom(a, bits).Contains(gateway) {
		bits--
	}
	return netip.PrefixFrom(a, bits)
}

// addr is the node's first address of a family.
func (n *Node) addr(v4 bool) netip.Addr {
	for _, a := range n.cfg.Addrs {
		if a.Is4() == v4 {
			return a
		}
	}
	return netip.Addr{}
}
