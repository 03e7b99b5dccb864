package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
)

// Ground is the ground on which the field reports are reproduced: a node with two dual-stack pods of
// namespace t1, one of t2, a name server, and the world outside.
type Ground struct {
	*Node
	Ext *NetNS
}

// Addresses of the ground. The first of each pair is the IPv4 one.
var (
	GroundNode  = addrs("10.0.0.10", "fd00:10::10")
	GroundExt   = addrs("10.0.0.1", "fd00:10::1")
	GroundWorld = addrs("198.51.100.7", "2001:db8:7::7", "203.0.113.9", "169.254.169.254")

	PodA = groundPod("t1", "a-7c9d-x1", "10.0.1.11", "fd00:10:1::11")
	PodB = groundPod("t1", "b-5f4d-y1", "10.0.1.12", "fd00:10:1::12")
	PodC = groundPod("t2", "c-66d8-z1", "10.0.1.13", "fd00:10:1::13")
	PodD = groundPod("kube-system", "dns-1", "10.0.1.53", "fd00:10:1::53")
)

// NewGround makes the ground without pods and without latchd. cfg.Addrs is set here.
func NewGround(cfg Config) (*Ground, error) {
	cfg.Addrs = GroundNode
	n, err := NewNode(cfg)
	if err != nil {
		return nil, err
	}
	g := &Ground{Node: n}
	g.Ext, err = n.Join(Network{Name: "ext", NodeIf: "eth0",
		NodeAddrs: []netip.Prefix{netip.PrefixFrom(GroundNode[0], 24), netip.PrefixFrom(GroundNode[1], 64)},
		Addrs:     []netip.Prefix{netip.PrefixFrom(GroundExt[0], 24), netip.PrefixFrom(GroundExt[1], 64)}})
	if err == nil {
		err = g.Ext.AddAddrs(GroundWorld...)
	}
	if err != nil {
		return nil, errors.Join(err, n.Stop(context.Background()))
	}
	return g, nil
}

// PodManifest is the Pod object that the API server holds before the pod's interface exists.
func PodManifest(p Pod, nodeName string, labels map[string]string) []byte {
	raw, err := json.Marshal(object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"namespace": p.Namespace, "name": p.Name, "uid": p.UID, "labels": labels},
		"spec":     object{"nodeName": nodeName}})
	if err != nil {
		panic(fmt.Sprintf("strings and maps of strings do not marshal: %v", err))
	}
	return append(append([]byte("---\n"), raw...), '\n')
}

func groundPod(namespace, name string, ips ...string) Pod {
	return Pod{Namespace: namespace, Name: name, UID: "uid-" + namespace + "-" + name, Addrs: addrs(ips...)}
}

func addrs(ips ...string) []netip.Addr {
	all := make([]netip.Addr, 0, len(ips))
	for _, ip := range ips {
		all = append(all, netip.MustParseAddr(ip))
	}
	return all
}
