package rtnl

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// bufferSize is more than the kernel puts into one datagram.
const bufferSize = 32 << 10

// maxAttempts bounds how often an interrupted dump is asked for again.
const maxAttempts = 20

// patience is how long an answer is waited for. The kernel has it before the request returns.
const patience = 10 // seconds

// Conn is a conversation. It is for one goroutine at a time.
type Conn struct {
	fd  int
	seq uint32
	buf []byte
}

// Dial opens a conversation in the network namespace of the calling thread.
func Dial() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: patience}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	return &Conn{fd: fd, buf: make([]byte, bufferSize)}, nil
}

// Close ends the conversation.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// Do has something done or looked up, and returns what the kernel answers, without headers. An error of
// the kernel is a syscall.Errno.
func (c *Conn) Do(kind, flags uint16, data ...nl.NetlinkRequestData) ([][]byte, error) {
	answers, _, err := c.exchange(kind, flags|unix.NLM_F_ACK, data)
	return answers, err
}

// Dump lists a table.
func (c *Conn) Dump(kind uint16, data ...nl.NetlinkRequestData) ([][]byte, error) {
	for range maxAttempts {
		answers, interrupted, err := c.exchange(kind, unix.NLM_F_DUMP, data)
		if err != nil || !interrupted {
			return answers, err
		}
	}
	return nil, errors.New("the table changed each time while it was read")
}

// exchange sends a request and collects the answers up to the one that ends them.
func (c *Conn) exchange(kind, flags uint16, data []nl.NetlinkRequestData) (answers [][]byte, interrupted bool, err error) {
	c.seq++
	req := nl.NetlinkRequest{
		NlMsghdr: unix.NlMsghdr{Len: unix.SizeofNlMsghdr, Type: kind, Flags: unix.NLM_F_REQUEST | flags, Seq: c.seq},
		Data:     data,
	}
	if err := unix.Sendto(c.fd, req.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, false, err
	}
	for {
		messages, err := c.receive()
		if err != nil {
			return nil, false, err
		}
		for _, m := range messages {
			if m.Header.Seq != c.seq { // of a request that failed half-way
				continue
			}
			interrupted = interrupted || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			switch m.Header.Type {
			case unix.NLMSG_ERROR, unix.NLMSG_DONE:
				return answers, interrupted, status(m)
			}
			answers = append(answers, m.Data)
		}
	}
}

func (c *Conn) receive() ([]syscall.NetlinkMessage, error) {
	n, _, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_TRUNC)
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(c.fd, c.buf, unix.MSG_TRUNC)
	}
	if err != nil {
		return nil, fmt.Errorf("receive from netlink: %w", err)
	}
	if n > len(c.buf) {
		return nil, fmt.Errorf("receive from netlink: answer of %d bytes", n)
	}
	return syscall.ParseNetlinkMessage(bytes.Clone(c.buf[:n]))
}

// status is the result that a last message holds, if it holds one.
func status(m syscall.NetlinkMessage) error {
	if len(m.Data) < 4 {
		return nil
	}
	if errno := int32(nl.NativeEndian().Uint32(m.Data)); errno != 0 {
		return syscall.Errno(-errno)
	}
	return nil
}
