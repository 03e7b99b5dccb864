package regress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stream is a connection that exchanges a word now and then, until it is closed.
type stream struct {
	name string
	conn net.Conn
	stop chan struct{}
	done chan struct{}

	mu   sync.Mutex
	last time.Time     // that an answer came
	gap  time.Duration // longest between two answers
	err  error         // that ended it
}

// stream opens a connection to an echo server and keeps it busy.
func (g *ground) stream(from string, local uint16, to string, port uint16, pace time.Duration) []*stream {
	g.t.Helper()
	var all []*stream
	for _, f := range g.pairs(from, to) {
		c, err := g.netns(from).DialFrom("tcp", netip.AddrPortFrom(f[0], local).String(), netip.AddrPortFrom(f[1], port).String(), arrival)
		if err != nil {
			g.t.Fatalf("stream %s > %s: %v", f[0], f[1], err)
		}
		s := &stream{name: fmt.Sprintf("stream %s > %s:%d", f[0], f[1], port), conn: c,
			stop: make(chan struct{}), done: make(chan struct{}), last: time.Now()}
		go s.run(pace)
		g.t.Cleanup(s.close)
		all = append(all, s)
	}
	return all
}

func (s *stream) run(pace time.Duration) {
	defer close(s.done)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := uint64(0); ; n++ {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		word := binary.BigEndian.AppendUint64(nil, n)
		_ = s.conn.SetDeadline(time.Now().Add(30 * time.Second))
		_, err := s.conn.Write(word)
		if err == nil {
			_, err = io.ReadFull(s.conn, word)
		}
		s.mu.Lock()
		if err != nil || binary.BigEndian.Uint64(word) != n {
			s.err = errors.Join(err, fmt.Errorf("word %d was not answered", n))
			s.mu.Unlock()
			return
		}
		now := time.Now()
		s.gap, s.last = max(s.gap, now.Sub(s.last)), now
		s.mu.Unlock()
	}
}

func (s *stream) lastAnswer() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *stream) close() {
	select {
	case <-s.stop:
		return
	default:
	}
	close(s.stop)
	_ = s.conn.SetDeadline(time.Now())
	<-s.done
	_ = s.conn.Close()
}

// check tells whether no segment of the stream was lost, and whether it has had its answers in time all
// along. A segment that was repeated though the first had arrived was not lost: the machine was slow.
func (s *stream) check(patience time.Duration) error {
	lost, err := s.lost()
	s.mu.Lock()
	defer s.mu.Unlock()
	gap := max(s.gap, time.Since(s.last))
	if err := errors.Join(s.err, err); err != nil || gap > patience || lost > 0 {
		return fmt.Errorf("%s: %v, %d segments lost, longest gap %v, want none and at most %v", s.name, err, lost, gap, patience)
	}
	return nil
}

func (s *stream) lost() (n int, err error) {
	raw, err := s.conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int(info.Total_retrans) - int(info.Dsack_dups)
		}
	})
	return n, errors.Join(err, controlErr)
}

func (g *ground) flowing(what string, streams []*stream, patience time.Duration) {
	g.t.Helper()
	for _, s := range streams {
		if err := s.check(patience); err != nil {
			g.t.Fatalf("%s: %v", what, err)
		}
	}
}

// cut requires that streams end when the grace is over that began when policy denied them.
func (g *ground) cut(streams []*stream, denied time.Time, grace time.Duration) {
	g.t.Helper()
	const quiet = 3 * time.Second
	g.eventually(grace+20*time.Second, func() error {
		for _, s := range streams {
			if ago := time.Since(s.lastAnswer()); ago < quiet {
				return fmt.Errorf("%s: answered %v ago", s.name, ago)
			}
		}
		return nil
	})
	for _, s := range streams {
		if last := s.lastAnswer(); last.After(denied.Add(grace + time.Second)) {
			g.t.Errorf("%s: answered until %v after the policy was in force, want at most %v", s.name, last.Sub(denied), grace+time.Second)
		}
	}
}
