package main

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/probe"
)

// stream opens connections to one destination again and again, without waiting for an answer: each is
// one SYN, never sent twice.
type stream struct {
	ns   probe.Namespace
	to   netip.AddrPort
	sent atomic.Int64 // counted before it leaves, so that no more arrive than are sent
	stop chan struct{}
	done sync.WaitGroup
}

const pace = time.Millisecond

// Flags of TCP.
const (
	syn = 0x02
	ack = 0x10
)

func startStream(ns probe.Namespace, to netip.AddrPort) *stream {
	s := &stream{ns: ns, to: to, stop: make(chan struct{})}
	s.done.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-tick.C:
				s.sent.Add(1)
				if s.ns.Do(s.knock) != nil {
					s.sent.Add(-1)
				}
			}
		}
	})
	return s
}

// knock sends one SYN. It fails while there is no way to the destination.
func (s *stream) knock() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: s.to.Addr().As4(), Port: int(s.to.Port())})
	if err == unix.EINPROGRESS {
		return nil
	}
	return err
}

// end stops the sender and returns how many it sent.
func (s *stream) end() int64 {
	close(s.stop)
	s.done.Wait()
	return s.sent.Load()
}

// watch counts the SYNs that reach an address, by source and port.
type watch struct {
	sniff *probe.Sniffer
	count map[netip.AddrPort]int64 // source address and destination port
}

func startWatch(ns probe.Namespace, addr netip.Addr) (*watch, error) {
	s, err := probe.OpenSniffer(ns, addr)
	if err != nil {
		return nil, err
	}
	return &watch{s, map[netip.AddrPort]int64{}}, nil
}

// look takes in what has arrived.
func (w *watch) look() error {
	_, err := w.sniff.Drain(func(p probe.Packet) {
		if p.Proto == probe.TCP && p.TCPFlags&(syn|ack) == syn {
			w.count[netip.AddrPortFrom(p.Src.Addr(), p.Dst.Port())]++
		}
	})
	return err
}

func (w *watch) from(src netip.Addr, port uint16) int64 {
	return w.count[netip.AddrPortFrom(src, port)]
}

func (w *watch) close() { w.sniff.Close() }
