package testenv

import (
	"testing"
)

// Addresses of the ground.
const (
	NodeAddr4 = "10.0.0.10"
	NodeAddr6 = "fd00:10::10"
	ExtAddr4  = "10.0.0.1"
	ExtAddr6  = "fd00:10::1"
	ExtWeb4   = "198.51.100.7"
	ExtOther4 = "203.0.113.9"
	ExtIMDS4  = "169.254.169.254"
	ExtWeb6   = "2001:db8:7::7"
)

// GroundT0 is the ground of the field reports: a node that forwards, and what lies outside of it.
// Pods are added by Pod.
type GroundT0 struct {
	Node *NetNS // its eth0 leads to Ext
	Ext  *NetNS // its eth0 leads to Node and bears all external addresses
}

// Ground makes a node and its outside, without pods.
func Ground(t testing.TB) *GroundT0 {
	t.Helper()
	g := &GroundT0{Node: New(t), Ext: New(t)}
	for key, value := range map[string]string{
		"net.ipv4.ip_forward":             "1",
		"net.ipv4.conf.all.rp_filter":     "2",
		"net.ipv4.conf.default.rp_filter": "2",
		"net.ipv6.conf.all.forwarding":    "1",
	} {
		g.Node.Sysctl(t, key, value)
	}
	Veth(t, g.Node, "eth0", g.Ext, "eth0")
	g.Node.Addr(t, "eth0", NodeAddr4+"/24", NodeAddr6+"/64")
	g.Node.Route(t, "default4", ExtAddr4, "eth0")
	g.Node.Route(t, "default6", ExtAddr6, "eth0")
	g.Ext.Addr(t, "eth0", ExtAddr4+"/24", ExtWeb4+"/32", ExtOther4+"/32", ExtIMDS4+"/32", ExtAddr6+"/64", ExtWeb6+"/128")
	g.Ext.Route(t, "10.0.1.0/24", NodeAddr4, "eth0")
	g.Ext.Route(t, "fd00:10:1::/64", NodeAddr6, "eth0")
	return g
}
