package testenv

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// Server echoes what it gets.
type Server struct {
	Addr string       // address and port it listens on
	Seen atomic.Int64 // accepted connections, or received datagrams
}

// ListenTCP starts an echo server in the namespace. addr is such as "10.0.1.11:80" or "[::]:80"; port 0
// takes a free one.
func (n *NetNS) ListenTCP(t testing.TB, addr string) *Server {
	t.Helper()
	var l net.Listener
	n.MustDo(t, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	t.Cleanup(func() { _ = l.Close() })
	s := &Server{Addr: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.Seen.Add(1)
			go func() {
				defer c.Close()
				for b := make([]byte, 65536); ; {
					_ = c.SetDeadline(time.Now().Add(time.Minute)) // of silence
					n, err := c.Read(b)
					if _, writeErr := c.Write(b[:n]); err != nil || writeErr != nil {
						return
					}
				}
			}()
		}
	}()
	return s
}

// ListenUDP starts an echo server in the namespace. It answers from the address it was asked at only if
// addr names that address.
func (n *NetNS) ListenUDP(t testing.TB, addr string) *Server {
	t.Helper()
	c := n.PacketConn(t, addr)
	s := &Server{Addr: c.LocalAddr().String()}
	go func() {
		b := make([]byte, 65536)
		for {
			size, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // an ICMP error for an earlier answer
				continue
			}
			s.Seen.Add(1)
			_, _ = c.WriteTo(b[:size], from)
		}
	}()
	return s
}

// PacketConn opens a UDP socket in the namespace that ends with the test.
func (n *NetNS) PacketConn(t testing.TB, addr string) net.PacketConn {
	t.Helper()
	var c net.PacketConn
	n.MustDo(t, func() (err error) {
		c, err = net.ListenPacket("udp", addr)
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Dial connects from the namespace; network is "tcp" or "udp". The caller closes the connection.
func (n *NetNS) Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	return n.DialFrom(network, "", addr, timeout)
}

// DialFrom is Dial from a local address and port such as "10.0.1.11:1024".
func (n *NetNS) DialFrom(network, local, addr string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	if local != "" {
		var err error
		switch network {
		case "tcp":
			d.LocalAddr, err = net.ResolveTCPAddr(network, local)
		case "udp":
			d.LocalAddr, err = net.ResolveUDPAddr(network, local)
		default:
			err = net.UnknownNetworkError(network)
		}
		if err != nil {
			return nil, err
		}
	}
	var c net.Conn
	err := n.Do(func() (err error) {
		c, err = d.Dial(network, addr)
		return err
	})
	return c, err
}

// Ask connects from the namespace to an echo server, sends a word and waits for it to come back.
func (n *NetNS) Ask(network, addr string, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	c, err := n.Dial(network, addr, timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(deadline)
	return Echo(c)
}

// Echo sends a word over a connection to an echo server and waits for it to come back. It keeps to the
// deadline of the connection.
func Echo(c net.Conn) error {
	const word = "latch"
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	b := make([]byte, len(word))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != word {
		return fmt.Errorf("echo is %q", b)
	}
	return nil
}
