package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/latch-cni/latch/integration/harness"
)

const (
	allow = "allow"
	deny  = "deny"

	// arrival bounds the time in which a packet arrives that is not dropped.
	arrival = 250 * time.Millisecond
)

var errNotYet = errors.New("not yet")

// serve answers on a port of the pod with what it is sent, in both families.
func (p *pod) serve(port uint16) *pod {
	p.n.t.Helper()
	for _, a := range p.addrs {
		p.n.eventually(inForce, func() error { // an IPv6 address is tentative for a moment
			return p.NS.Do(func() error {
				l, err := net.Listen("tcp", netip.AddrPortFrom(a, port).String())
				if err != nil {
					return err
				}
				p.n.t.Cleanup(func() { _ = l.Close() })
				go echo(l)
				return nil
			})
		})
	}
	return p
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			_, _ = io.Copy(c, c)
		}()
	}
}

func dial(ns *harness.NetNS, from, to netip.AddrPort) (c net.Conn, err error) {
	d := net.Dialer{Timeout: arrival, LocalAddr: net.TCPAddrFromAddrPort(from)}
	err = ns.Do(func() error {
		c, err = d.DialContext(context.Background(), "tcp", to.String())
		return err
	})
	return c, err
}

// try opens a connection, exchanges a byte and resets it.
func try(ns *harness.NetNS, from, to netip.AddrPort) (string, error) {
	c, err := dial(ns, from, to)
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return deny, nil
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return allow, nil // the pod itself answered
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte{1}); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		return "", fmt.Errorf("connected without an answer: %w", err)
	}
	return allow, nil
}

// verdict is what becomes of new connections from one pod to another, in both families.
func (p *pod) verdict(to *pod, port uint16) (string, error) {
	var all []string
	for i, a := range to.addrs {
		v, err := try(p.NS, netip.AddrPortFrom(p.addrs[i], 0), netip.AddrPortFrom(a, port))
		if err != nil {
			return "", fmt.Errorf("%s > %s: %w", p.name, to.name, err)
		}
		all = append(all, v)
	}
	if all[0] == all[1] {
		return all[0], nil
	}
	return strings.Join(all, " and over IPv6 "), nil
}

// becomes waits until a verdict is in force, and requires that it stays.
func (p *pod) becomes(what, want string, to *pod, port uint16) {
	p.n.t.Helper()
	begin := time.Now()
	p.n.eventually(inForce, func() error { return p.expects(want, to, port) })
	took := time.Since(begin)
	p.stays(what, want, to, port, 3)
	p.n.t.Logf("%s: %s within %v", what, want, took.Round(time.Millisecond))
}

// stays requires a verdict a number of times.
func (p *pod) stays(what, want string, to *pod, port uint16, times int) {
	p.n.t.Helper()
	for range times {
		if err := p.expects(want, to, port); err != nil {
			p.n.t.Fatalf("%s: %v", what, err)
		}
	}
}

func (p *pod) expects(want string, to *pod, port uint16) error {
	got, err := p.verdict(to, port)
	if err == nil && got != want {
		err = fmt.Errorf("%s > %s:%d: %s, want %s", p.name, to.name, port, got, want)
	}
	return err
}

// stream is a pair of connections, one a family, that exchange bytes until they are closed.
type stream struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex
	last map[string]time.Time // answer, by family
	gap  time.Duration        // longest between two answers
}

// stream opens connections to a pod and keeps them busy, ten times a second.
func (p *pod) stream(local uint16, to *pod, port uint16) *stream {
	p.n.t.Helper()
	s := &stream{stop: make(chan struct{}), last: map[string]time.Time{}}
	for i, a := range to.addrs {
		c, err := dial(p.NS, netip.AddrPortFrom(p.addrs[i], local), netip.AddrPortFrom(a, port))
		p.n.must(err)
		s.last[strconv.Itoa(i)] = time.Now()
		s.wg.Go(func() { s.run(c, strconv.Itoa(i)) })
	}
	p.n.t.Cleanup(s.close)
	return s
}

func (s *stream) run(c net.Conn, family string) {
	defer func() { _ = c.Close() }()
	go func() {
		<-s.stop
		_ = c.SetDeadline(time.Now())
	}()
	for {
		if _, err := c.Write([]byte{1}); err != nil {
			return
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return
		}
		s.mu.Lock()
		s.gap = max(s.gap, time.Since(s.last[family]))
		s.last[family] = time.Now()
		s.mu.Unlock()
		select {
		case <-s.stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *stream) close() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.wg.Wait()
}

// flows returns an error when an answer was late, ever.
func (s *stream) flows() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	gap := s.gap
	for _, t := range s.last {
		gap = max(gap, time.Since(t))
	}
	if gap > 600*time.Millisecond {
		return fmt.Errorf("stream paused for %v", gap)
	}
	return nil
}

// silent is for how long no family has had an answer.
func (s *stream) silent() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last time.Time
	for _, t := range s.last {
		if t.After(last) {
			last = t
		}
	}
	return time.Since(last)
}
