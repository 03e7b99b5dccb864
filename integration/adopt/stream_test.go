package adopt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// stream is a connection to an echo server on which words are exchanged without end.
type stream struct {
	name string
	conn net.Conn

	mu   sync.Mutex
	last time.Time // that an answer came
	err  error
}

func newStream(t *testing.T, ns *testenv.NetNS, local, remote string) *stream {
	t.Helper()
	c, err := ns.DialFrom("tcp", local, remote, 2*time.Second)
	if err != nil {
		t.Fatalf("%s > %s: %v", local, remote, err)
	}
	s := &stream{name: local + " > " + remote, conn: c, last: time.Now()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := uint64(0); s.exchange(n); n++ {
			time.Sleep(20 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-done
	})
	return s
}

func (s *stream) exchange(n uint64) bool {
	word := binary.BigEndian.AppendUint64(nil, n)
	_, err := s.conn.Write(word)
	if err == nil {
		_, err = io.ReadFull(s.conn, word)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = err
		return false
	}
	s.last = time.Now()
	return true
}

// alive requires that an answer comes after now.
func (s *stream) alive(t *testing.T) {
	t.Helper()
	now := time.Now()
	testenv.Eventually(t, 5*time.Second, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != nil || s.last.Before(now) {
			return fmt.Errorf("%s: silent for %v: %v", s.name, time.Since(s.last), s.err)
		}
		return nil
	})
}

// silent tells for how long there has been no answer.
func (s *stream) silent() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.last)
}

// exchange is datagrams to an echo server that are counted, of one flow or each of a flow of its own. None
// may be lost: nobody repeats them.
type exchange struct {
	name           string
	stop           chan struct{}
	done           sync.WaitGroup
	mu             sync.Mutex
	sent, answered int
}

// On a slow machine the pause between datagrams is such that sending takes a twentieth of the time.
const (
	minPause, maxPause = 2 * time.Millisecond, 100 * time.Millisecond
	answerTime         = 5 * time.Second // of a busy machine
)

// exchangeDatagrams sends from one local port for ever; from port 0 it takes another for each datagram.
func exchangeDatagrams(t *testing.T, ns *testenv.NetNS, local, remote string) *exchange {
	t.Helper()
	e := &exchange{name: local + " > " + remote, stop: make(chan struct{})}
	dial := func() net.Conn {
		c, err := ns.DialFrom("udp", local, remote, time.Second)
		if err != nil {
			t.Errorf("%s: %v", e.name, err)
			return nil
		}
		return c
	}
	one := dial()
	if one == nil {
		t.FailNow()
	}
	_, port, _ := net.SplitHostPort(local)
	if port != "0" {
		e.receive(one)
		t.Cleanup(func() { _ = one.Close() })
	} else {
		_ = one.Close()
	}
	e.done.Go(func() {
		took := time.Duration(0)
		for {
			select {
			case <-e.stop:
				return
			case <-time.After(min(max(minPause, 19*took), maxPause)):
			}
			began := time.Now()
			c := one
			if port == "0" {
				if c = dial(); c == nil {
					return
				}
				t.Cleanup(func() { _ = c.Close() })
				e.receive(c)
			}
			if _, err := c.Write([]byte("?")); err == nil {
				e.mu.Lock()
				e.sent++
				e.mu.Unlock()
			}
			took = time.Since(began)
		}
	})
	t.Cleanup(e.end)
	return e
}

// receive counts answers until the connection ends.
func (e *exchange) receive(c net.Conn) {
	go func() {
		for b := make([]byte, 8); ; {
			_, err := c.Read(b)
			if opErr, ok := err.(*net.OpError); ok && opErr.Temporary() {
				continue
			}
			if err != nil {
				return
			}
			e.mu.Lock()
			e.answered++
			e.mu.Unlock()
		}
	}()
}

// serveSlowly is an echo server that takes its time, as a name server does.
func serveSlowly(t *testing.T, ns *testenv.NetNS, addr string, takes time.Duration) {
	t.Helper()
	c := ns.PacketConn(t, addr)
	go func() {
		for b := make([]byte, 8); ; {
			n, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			answer := slices.Clone(b[:n])
			time.AfterFunc(takes, func() { _, _ = c.WriteTo(answer, from) })
		}
	}()
}

func (e *exchange) end() {
	select {
	case <-e.stop:
	default:
		close(e.stop)
	}
	e.done.Wait()
}

// lossless ends the exchange and requires that every datagram was answered.
func (e *exchange) lossless(t *testing.T) {
	t.Helper()
	e.end()
	testenv.Eventually(t, answerTime, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.sent < 20 || e.answered != e.sent {
			return fmt.Errorf("%s: %d of %d datagrams were answered", e.name, e.answered, e.sent)
		}
		return nil
	})
}
