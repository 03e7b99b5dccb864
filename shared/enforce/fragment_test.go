package enforce

import (
	"encoding/binary"
	"errors"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// With conntrack, the node reassembles a fragmented packet of IPv6 and cuts it up again. If the first
// fragment has a longer header than the others, it makes new packets for that, and those say nothing of
// the interface that the packet came in on, like packets of the node itself.
func TestForwardedFragmentsAreNotOfTheNode(t *testing.T) {
	g := testenv.Ground(t)
	a := g.Pod(t, testenv.PodSpec{Namespace: "shop", Name: "a", Addr6: "fd00:10:1::11"})
	b := g.Pod(t, testenv.PodSpec{Namespace: "shop", Name: "b", Addr6: "fd00:10:1::12"})
	g.Node.MustDo(t, func() error {
		return exec.Command("nft", "add table ip6 t; add chain ip6 t c { type filter hook forward priority 0; }; add rule ip6 t c ct state invalid counter").Run()
	})
	e, err := Open(ctx, Config{Bpffs: testenv.BPFFS(t), StateDir: testenv.StateDir(t), AttachMode: attach.ModeClsact,
		LockTimeout: lockTimeout, Sizes: bpf.Sizes{Flows4: 64, Flows6: 64, Frags: 64}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	apply := &ground{t: t, node: g.Node, e: e}
	apply.apply(Request{Identifier: idB, Create: policy.Compile(policy.Input{}), Bind: []state.Attachment{{
		ContainerID: "c1", IfName: "eth0", PodNamespace: "shop", PodName: "b",
		Interfaces: []state.Interface{{Ifindex: b.HostIfindex, Name: b.HostName, Addr6: b.Addr6}},
	}}})
	received := receiver(t, b.NetNS)

	whole := testenv.UDP("[fd00:10:1::11]:5555", "[fd00:10:1::12]:9000", make([]byte, 1500)...)[14+40:]
	first := testenv.Raw(a.Addr6, b.Addr6, unix.IPPROTO_HOPOPTS, slices.Concat(hopOptions(200), fragment(0, true), whole[:800]))
	second := testenv.Raw(a.Addr6, b.Addr6, unix.IPPROTO_FRAGMENT, slices.Concat(fragment(800, false), whole[800:]))
	plain := testenv.UDP("[fd00:10:1::11]:5555", "[fd00:10:1::12]:9000", 'x')
	for _, frame := range [][]byte{first, second, plain} {
		a.Inject(t, "eth0", testenv.WithMAC(frame, a.MAC, a.HostMAC))
	}
	time.Sleep(200 * time.Millisecond)
	if n := received(); n != 0 {
		t.Errorf("%d datagrams reached a pod that is closed", n)
	}

	apply.apply(Request{Identifier: idB, Create: openRules()})
	a.Inject(t, "eth0", testenv.WithMAC(first, a.MAC, a.HostMAC), testenv.WithMAC(second, a.MAC, a.HostMAC))
	testenv.Eventually(t, 2*time.Second, wants("a fragmented datagram to an open pod", received))
	apply.apply(Request{Identifier: idB, Create: policy.Compile(policy.Input{})})
	c, err := g.Node.Dial("udp6", "[fd00:10:1::12]:9000", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, 4000)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 2*time.Second, wants("a fragmented datagram of the node itself", received))
}

// receiver counts the datagrams to port 9000 since it was asked last.
func receiver(t *testing.T, n *testenv.NetNS) func() int {
	t.Helper()
	fd := -1
	n.MustDo(t, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrInet6{Port: 9000})
	})
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() (count int) {
		b := make([]byte, 1<<16)
		for {
			if _, _, err := unix.Recvfrom(fd, b, 0); err != nil {
				return count
			}
			count++
		}
	}
}

func wants(what string, received func() int) func() error {
	return func() error {
		if received() == 0 {
			return errors.New(what + " did not arrive")
		}
		return nil
	}
}

// hopOptions is a header of hop-by-hop options with one that is to be skipped.
func hopOptions(length int) []byte {
	b := make([]byte, length)
	b[0], b[1], b[2], b[3] = unix.IPPROTO_FRAGMENT, byte(length/8-1), 0x1e, byte(length-4)
	return b
}

func fragment(offset uint16, more bool) []byte {
	b := []byte{unix.IPPROTO_UDP, 0, 0, 0, 0, 0, 0, 9}
	if more {
		offset |= 1
	}
	binary.BigEndian.PutUint16(b[2:], offset)
	return b
}
