package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netns"
)

func TestMain(m *testing.M) { Main(m) }

func TestDoEntersAndReturns(t *testing.T) {
	n := New(t)
	home, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	for range 20 {
		n.MustDo(t, func() error {
			here, err := netns.Get()
			if err != nil {
				return err
			}
			defer here.Close()
			if here.Equal(home) {
				return errors.New("not inside")
			}
			return nil
		})
	}
	back, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if !back.Equal(home) {
		t.Error("not back")
	}
	want := errors.New("x")
	if err := n.Do(func() error { return want }); err != want {
		t.Errorf("got %v", err)
	}
}

func TestRemoveEndsTheVeth(t *testing.T) {
	host, pod := New(t), New(t)
	Veth(t, host, "h0", pod, "eth0")
	pod.Remove(t)
	Eventually(t, 5*time.Second, func() error {
		if _, err := host.Netlink.LinkByName("h0"); err == nil {
			return errors.New("host veth is still there")
		}
		return nil
	})
}

// The ground is wired: pods, node and outside reach each other by both families.
func TestGround(t *testing.T) {
	g := Ground(t)
	a, b := g.Pod(t, PodA), g.Pod(t, PodB)
	servers := []struct {
		name       string
		n          *NetNS
		addr4, ip6 string
	}{
		{"pod b", b.NetNS, PodB.Addr4, PodB.Addr6},
		{"outside", g.Ext, ExtWeb4, ExtWeb6},
		{"node", g.Node, NodeAddr4, NodeAddr6},
		{"pod a itself", a.NetNS, PodA.Addr4, PodA.Addr6},
	}
	for _, s := range servers {
		for _, addr := range []string{s.addr4 + ":8080", "[" + s.ip6 + "]:8080"} {
			for network, server := range map[string]*Server{"tcp": s.n.ListenTCP(t, addr), "udp": s.n.ListenUDP(t, addr)} {
				t.Run(fmt.Sprintf("pod a reaches %s by %s %s", s.name, network, addr), func(t *testing.T) {
					if err := a.Ask(network, addr, 5*time.Second); err != nil {
						t.Error(err)
					}
					if seen := server.Seen.Load(); seen != 1 {
						t.Errorf("server saw %d", seen)
					}
				})
			}
		}
	}
	s := a.ListenTCP(t, PodA.Addr4+":80")
	for name, n := range map[string]*NetNS{"node": g.Node, "outside": g.Ext} {
		if err := n.Ask("tcp", s.Addr, 5*time.Second); err != nil {
			t.Errorf("%s to pod a: %v", name, err)
		}
	}
	if err := a.Ask("tcp", ExtWeb4+":81", time.Second); err == nil {
		t.Error("connected where nobody listens")
	}
	r := a.PrevResult()
	if r.Interfaces[0].Name != a.HostName || r.Interfaces[1].Sandbox != a.Path() || len(r.IPs) != 2 ||
		r.IPs[0].Address.String() != PodA.Addr4+"/32" || r.IPs[1].Address.String() != PodA.Addr6+"/128" {
		t.Errorf("prevResult %+v", r)
	}
}

// Frames injected in the pod arrive on the node's end as they were built.
func TestInjectAndCapture(t *testing.T) {
	host, pod := New(t), New(t)
	hostEnd, podEnd := Veth(t, host, "h0", pod, "eth0")
	frames := [][]byte{
		TCP("10.0.0.1:1024", "10.0.0.2:80", SYN),
		TCP("[fd00::1]:1024", "[fd00::2]:80", SYN|ACK, 1, 2, 3),
		UDP("10.0.0.1:7000", "10.0.0.2:1053", []byte("answer")...),
		UDP("[fd00::1]:53", "[fd00::2]:1053"),
		SCTP("10.0.0.1:1", "10.0.0.2:2"),
		Ping("10.0.0.1", "10.0.0.2", false, 7, 1),
		Ping("fd00::1", "fd00::2", true, 7, 1),
		TooBig("10.0.0.9", "10.0.0.1", 1300, TCP("10.0.0.1:1024", "10.0.0.2:80", ACK)),
		Unreachable("fd00::9", "fd00::1", UDP("[fd00::1]:53", "[fd00::2]:1053")),
	}
	const kind = 12 // the EtherType tells ours from what the kernel sends by itself
	c := host.Capture(t, "h0", func(f []byte) bool { return bytes.Equal(f[6:12], podEnd.Attrs().HardwareAddr) && mine(f) })
	for i, f := range frames {
		f = WithMAC(f, podEnd.Attrs().HardwareAddr, hostEnd.Attrs().HardwareAddr)
		pod.Inject(t, "eth0", f)
		c.WaitCount(t, i+1, 5*time.Second)
		if got := c.Frames()[i]; !bytes.Equal(got[:len(f)], f) {
			t.Errorf("frame %d (type %x) came as\n%x, want\n%x", i, f[kind:kind+2], got, f)
		}
		p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
		if e := p.ErrorLayer(); e != nil {
			t.Errorf("frame %d: %v", i, e.Error())
		}
	}
}

// mine tells frames of the test from neighbour and multicast reports of the kernel.
func mine(f []byte) bool {
	p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.NoCopy)
	if ip, ok := p.NetworkLayer().(*layers.IPv6); ok {
		return ip.SrcIP.IsGlobalUnicast() && ip.DstIP.IsGlobalUnicast()
	}
	return p.Layer(layers.LayerTypeIPv4) != nil
}

func TestInventoryNamesLeaks(t *testing.T) {
	dir := os.Getenv("TMPDIR")
	before, err := takeInventory(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := New(t)
	bpffs := BPFFS(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	orphan, err := exec.Command("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(orphan)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	leaks, _, err := leaksSince(dir, before)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(leaks, "\n")
	for _, want := range []string{"mount of nsfs on " + n.Path(), "mount of bpf on " + bpffs, "of this process: " + n.Path(), "of this process: anon_inode:bpf-map", fmt.Sprintf("process %d: s", pid)} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
}
