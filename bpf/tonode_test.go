package bpf_test

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// listen makes a socket of the node at addr:port; the address need not be there.
func (r *rig) listen(network, addr string, port int) {
	r.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if ctlErr := c.Control(func(fd uintptr) {
			level, opt := unix.SOL_IP, unix.IP_FREEBIND
			if netip.MustParseAddr(addr).Is6() {
				level, opt = unix.SOL_IPV6, unix.IPV6_FREEBIND
			}
			err = unix.SetsockoptInt(int(fd), level, opt, 1)
		}); ctlErr != nil {
			return ctlErr
		}
		return err
	}}
	if network == "udp" {
		c, err := lc.ListenPacket(context.Background(), network, at(addr, port))
		r.must(err)
		r.Cleanup(func() { _ = c.Close() })
		return
	}
	l, err := lc.Listen(context.Background(), network, at(addr, port))
	r.must(err)
	r.Cleanup(func() { _ = l.Close() })
}

// D8: to the sockets of its node a pod may send, unless a switch has that judged.
func TestToNode(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2})
		r.addNodeAddr(f)
		r.listen("tcp", f.node, 443)
		r.listen("udp", f.node, 53)
		r.want("allow node", bpf.Egress, f.tcp(bpf.Egress, 41000, f.node, 443, syn))
		r.want("allow flow", bpf.Ingress, f.tcp(bpf.Ingress, 41000, f.node, 443, synAck))
		r.want("deny policy", bpf.Egress, f.tcp(bpf.Egress, 41000, f.other, 443, syn))
		r.load(policy{onMiss: deny2})
		r.age(f)
		r.want("allow flow", bpf.Egress, f.tcp(bpf.Egress, 41000, f.node, 443, ack))

		// A flow that rules admitted stays one of the node's when the rules go.
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {allPorts(f.hostOf(f.node))}}})
		r.want("allow policy", bpf.Egress, f.udp(bpf.Egress, 41000, f.node, 53))
		r.load(policy{onMiss: deny2})
		r.age(f)
		r.want("allow flow", bpf.Egress, f.udp(bpf.Egress, 41000, f.node, 53))

		r.node().Flags = bpf.NodeJudgeToNode
		r.want("deny policy", bpf.Egress, f.tcp(bpf.Egress, 41000, f.node, 443, syn))
		r.want("deny policy", bpf.Egress, f.udp(bpf.Egress, 41001, f.node, 53))
	})
}

// D8: a port of the node without a socket is not the node's: a node port leads to other pods.
func TestToNodePort(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2})
		r.addNodeAddr(f)
		r.listen("tcp", f.node, 443)
		r.listen("udp", f.node, 53)
		for _, flags := range []testenv.TCPFlags{syn, ack, synAck, rst} {
			r.want("deny policy", bpf.Egress, f.tcp(bpf.Egress, 41000, f.node, 30080, flags))
			r.want("deny policy", bpf.Egress, f.tcp(bpf.Egress, 41000, f.node, 53, flags))
		}
		r.want("deny policy", bpf.Egress, f.udp(bpf.Egress, 41000, f.node, 30080))
		r.want("deny policy", bpf.Egress, f.udp(bpf.Egress, 41000, f.node, 443))
		if n := r.flows(f); n != 0 {
			t.Errorf("%d flows were recorded", n)
		}

		// A flow that the rules admitted is cut when they go.
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {allPorts(f.hostOf(f.node))}}})
		r.want("allow policy", bpf.Egress, f.udp(bpf.Egress, 41000, f.node, 30080))
		r.load(policy{onMiss: deny2})
		r.age(f)
		r.want("deny cut", bpf.Ingress, f.udp(bpf.Ingress, 41000, f.node, 30080))
		r.want("deny cut", bpf.Egress, f.udp(bpf.Egress, 41000, f.node, 30080))
	})
}

// The node's end of a connection to the pod is a socket, too, also when no flow is known any more.
func TestToNodeConnected(t *testing.T) {
	r := newRig(t)
	f := v4
	f.pod, f.node = "127.0.0.1", "127.0.0.2"
	r.pods.At(podIfindex).Addr4 = bpf.Addr4(netip.MustParseAddr(f.pod))
	r.load(policy{onMiss: deny2})
	r.addNodeAddr(f)
	pod, err := net.Listen("tcp", at(f.pod, 0))
	r.must(err)
	defer pod.Close()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(at(f.node, 0)))}
	c, err := d.Dial("tcp", pod.Addr().String())
	r.must(err)
	defer c.Close()
	from, to := pod.Addr().(*net.TCPAddr).Port, c.LocalAddr().(*net.TCPAddr).Port
	r.want("deny policy", bpf.Egress, f.tcp(bpf.Egress, from+1, f.node, to, ack))
	r.want("allow node", bpf.Egress, f.tcp(bpf.Egress, from, f.node, to, ack))
}

func (f family) hostOf(addr string) string {
	a := netip.MustParseAddr(addr)
	return netip.PrefixFrom(a, a.BitLen()).String()
}
