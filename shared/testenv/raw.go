package testenv

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Capture counts and keeps the frames that come in on an interface. It sees them before any hook of TC
// at their entry, so look at the far end of what is tested.
type Capture struct {
	mu     sync.Mutex
	frames [][]byte
}

// Capture starts to listen on an interface of the namespace for incoming frames that match takes; nil
// takes all. It is ready when the function returns.
func (n *NetNS) Capture(t testing.TB, dev string, match func(frame []byte) bool) *Capture {
	t.Helper()
	fd, err := n.packetSocket(dev, unix.ETH_P_ALL)
	if err != nil {
		t.Fatalf("capture on %s: %v", dev, err)
	}
	c, done := &Capture{}, make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 65536)
		for {
			size, _, err := unix.Recvfrom(fd, b, 0)
			select {
			case <-stop:
				return
			default:
			}
			if err != nil || (match != nil && !match(b[:size])) { // time-outs end the wait for stop
				continue
			}
			c.mu.Lock()
			c.frames = append(c.frames, append([]byte(nil), b[:size]...))
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		_ = unix.Close(fd)
	})
	return c
}

// Count is how many frames have matched.
func (c *Capture) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.frames)
}

// Frames returns the frames that have matched.
func (c *Capture) Frames() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([][]byte(nil), c.frames...)
}

// WaitCount waits until at least want frames have matched.
func (c *Capture) WaitCount(t testing.TB, want int, timeout time.Duration) {
	t.Helper()
	Eventually(t, timeout, func() error {
		if got := c.Count(); got < want {
			return fmt.Errorf("captured %d frames, want %d", got, want)
		}
		return nil
	})
}

// Injector sends frames out of an interface.
type Injector struct {
	fd int
}

// Injector opens a socket to send frames out of an interface of the namespace.
func (n *NetNS) Injector(t testing.TB, dev string) *Injector {
	t.Helper()
	fd, err := n.packetSocket(dev, 0)
	if err != nil {
		t.Fatalf("inject on %s: %v", dev, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return &Injector{fd: fd}
}

// Send sends one frame, Ethernet header included.
func (i *Injector) Send(frame []byte) error {
	for {
		_, err := unix.Write(i.fd, frame)
		if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR) {
			continue
		}
		return err
	}
}

// Inject sends frames out of an interface of the namespace.
func (n *NetNS) Inject(t testing.TB, dev string, frames ...[]byte) {
	t.Helper()
	i := n.Injector(t, dev)
	for _, f := range frames {
		if err := i.Send(f); err != nil {
			t.Fatalf("inject on %s: %v", dev, err)
		}
	}
}

// packetSocket opens a socket bound to an interface; protocol 0 receives nothing.
func (n *NetNS) packetSocket(dev string, protocol uint16) (fd int, err error) {
	err = n.Do(func() error {
		index, err := n.index(dev)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		errs := []error{
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: index}),
		}
		if err := errors.Join(errs...); err != nil {
			_ = unix.Close(fd)
			return err
		}
		return nil
	})
	return fd, err
}

func (n *NetNS) index(dev string) (int, error) {
	l, err := n.Netlink.LinkByName(dev)
	if err != nil {
		return 0, err
	}
	return l.Attrs().Index, nil
}
