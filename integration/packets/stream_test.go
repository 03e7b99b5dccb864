package packets

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/testenv"
)

// A stream of segments that the stacks leave uncut (TSO) or put together (GRO) passes whole, over the
// hooks of two pods.
func TestBigSegments(t *testing.T) {
	for _, gro := range []bool{false, true} {
		t.Run(map[bool]string{false: "TSO", true: "GRO"}[gro], func(t *testing.T) {
			g := newGround(t, options{both: true})
			a := g.pod(testenv.PodA, "IE", "E "+v4.b+" tcp/8080", "E "+v6.b+" tcp/8080", "E "+v4.web+" tcp/8080", "E "+v6.web+" tcp/8080")
			b := g.pod(testenv.PodB, "IE", "I "+v4.a+" tcp/8080", "I "+v6.a+" tcp/8080")
			if gro { // the pod sends single segments, its host veth joins them before our program sees them
				g.ethtool(a.NetNS, "eth0", 0x1f, 0)    // ETHTOOL_STSO
				g.ethtool(a.NetNS, "eth0", 0x24, 0)    // ETHTOOL_SGSO
				g.ethtool(g.Node, a.HostName, 0x2c, 1) // ETHTOOL_SGRO
				g.ethtool(g.Node, "eth0", 0x2c, 1)
			}
			each(t, g, func(t *testing.T, f family) {
				for _, x := range []struct {
					ns  *testenv.NetNS
					dst string
				}{{b.NetNS, f.b}, {g.Ext, f.web}} {
					if err := transfer(t, a.NetNS, x.ns, at(x.dst, 8080)); err != nil {
						t.Errorf("> %s: %v", x.dst, err)
					}
				}
			})
			s := g.Node.Link(t, a.HostName).Attrs().Statistics
			t.Logf("host veth: %d bytes in %d packets", s.RxBytes, s.RxPackets)
			if size := s.RxBytes / max(s.RxPackets, 1); !gro && size < 3000 {
				t.Errorf("packets are %d bytes on average, not uncut", size)
			}
			if drops := newDrops(nil, g.drops()); drops != "" {
				t.Errorf("dropped: %s", drops)
			}
		})
	}
}

// transfer sends 8 MiB and requires them back as a digest.
func transfer(t *testing.T, from, to *testenv.NetNS, addr string) error {
	t.Helper()
	var l net.Listener
	to.MustDo(t, func() (err error) { l, err = net.Listen("tcp", addr); return err })
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		sum := sha256.New()
		_, _ = io.Copy(sum, c)
		_, _ = c.Write(sum.Sum(nil))
	}()
	c, err := from.Dial("tcp", addr, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i >> 8 * 31)
	}
	if _, err := c.Write(data); err != nil {
		return err
	}
	_ = c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(c)
	if want := sha256.Sum256(data); err == nil && !bytes.Equal(got, want[:]) {
		return errors.New("other bytes arrived than were sent")
	}
	return err
}

// ethtool sets one of an interface's offloads.
func (g *ground) ethtool(ns *testenv.NetNS, dev string, cmd, value uint32) {
	g.t.Helper()
	ns.MustDo(g.t, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		arg := [2]uint32{cmd, value}
		req := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&arg)}
		copy(req.name[:], dev)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
			return errno
		}
		return nil
	})
}
