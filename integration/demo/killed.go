package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// killed ends latchd by SIGKILL while packets flow, and starts it again.
func (d *demo) killed(ctx context.Context) error {
	d.out.chapter("kill -9 latchd under traffic, and start it again")
	web, api, db := d.pods["web"], d.pods["api"], d.pods["db"]
	long, err := d.connect(web, api) // before the watch, which would count it
	if err != nil {
		return err
	}
	defer long.Close()
	toAPI, err := startWatch(api.NS, api.role.addr)
	if err != nil {
		return err
	}
	defer toAPI.close()
	toDB, err := startWatch(db.NS, db.role.addr)
	if err != nil {
		return err
	}
	defer toDB.close()
	flights := []*flight{
		{what: "web -> api:8080", allowed: true, s: startStream(web.NS, netip.AddrPortFrom(api.role.addr, 8080)), w: toAPI, src: web.role.addr},
		{what: "web -> db:5432", s: startStream(web.NS, netip.AddrPortFrom(db.role.addr, 5432)), w: toDB, src: web.role.addr},
	}
	talk := talkOver(long)
	down, err := d.restart(ctx)
	land(ctx, flights) // whatever happened: senders must not outlive the pods
	segments, info, talkErr := talk.end()
	if err := errors.Join(err, talkErr); err != nil {
		return err
	}
	d.out.say("down for %.1f s; enforcement is the kernel's and went on", down.Seconds())
	allowed, forbidden := flights[0], flights[1]
	d.out.fact(allowed.sentAfter > 100 && allowed.arrivedAfter == allowed.sentAfter,
		"new connections that are allowed:    %5d tried, %5d arrived", allowed.sentAfter, allowed.arrivedAfter)
	d.out.fact(forbidden.sentAfter > 100 && forbidden.arrivedAfter == 0,
		"new connections that are forbidden:  %5d tried, %5d arrived", forbidden.sentAfter, forbidden.arrivedAfter)
	// What was sent twice and arrived twice was not lost, only acknowledged late.
	lost := info.Total_retrans - info.Dsack_dups
	d.out.fact(segments > 100 && lost == 0 && info.Unacked == 0,
		"one connection open all the while:   %5d segments sent, %d lost", segments, lost)
	return nil
}

// restart kills latchd, leaves it dead for a moment, starts it, and waits until it is ready. It returns
// how long there was none.
func (d *demo) restart(ctx context.Context) (time.Duration, error) {
	time.Sleep(200 * time.Millisecond)
	if err := d.node.KillLatchd(); err != nil {
		return 0, err
	}
	begin := time.Now()
	time.Sleep(300 * time.Millisecond)
	if err := d.node.StartLatchd(); err != nil {
		return 0, err
	}
	down := time.Since(begin)
	err := eventually(ctx, func() error {
		if err := d.node.Latchd.Running(); err != nil {
			return err
		}
		_, err := d.node.Latchctl(ctx, "check")
		return err
	})
	time.Sleep(300 * time.Millisecond)
	return down, err
}

// connect opens a connection from one pod to another. Nobody accepts it: what is sent waits in the
// receiver's kernel, which acknowledges it.
func (d *demo) connect(from, to *actor) (conn *net.TCPConn, err error) {
	err = from.NS.Do(func() error {
		c, err := net.DialTimeout("tcp4", netip.AddrPortFrom(to.role.addr, to.role.port).String(), 2*time.Second)
		if err == nil {
			conn = c.(*net.TCPConn)
		}
		return err
	})
	return conn, err
}

// talker sends one segment after the other over a connection.
type talker struct {
	conn     *net.TCPConn
	stop     chan struct{}
	segments chan int
	err      error
}

func talkOver(conn *net.TCPConn) *talker {
	t := &talker{conn: conn, stop: make(chan struct{}), segments: make(chan int, 1)}
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-t.stop:
				t.segments <- n
				return
			case <-tick.C:
			}
			if _, t.err = conn.Write([]byte("latch ")); t.err != nil {
				t.segments <- n
				return
			}
		}
	}()
	return t
}

// end stops and asks the kernel what became of the segments.
func (t *talker) end() (int, *unix.TCPInfo, error) {
	close(t.stop)
	n := <-t.segments
	if t.err != nil {
		return n, nil, fmt.Errorf("send over the open connection: %w", t.err)
	}
	time.Sleep(50 * time.Millisecond) // the last acknowledgement
	raw, err := t.conn.SyscallConn()
	if err != nil {
		return n, nil, err
	}
	var info *unix.TCPInfo
	var infoErr error
	err = raw.Control(func(fd uintptr) {
		info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err == nil {
		err = infoErr
	}
	return n, info, err
}
