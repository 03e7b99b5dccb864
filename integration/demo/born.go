package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// After ADD has returned, senders go on for so long.
const afterADD = 400 * time.Millisecond

// born has a pod come to life under policy while senders are at work, in it and around it.
func (d *demo) born(ctx context.Context) (err error) {
	d.out.chapter("A pod is born under policy: db-2, with senders at work from before ADD until after it")
	if err := d.announce(append(cast[:len(cast):len(cast)], newborn)...); err != nil {
		return err
	}
	box, err := d.node.NewSandbox(newborn.pod())
	if err != nil {
		return err
	}
	web, api := d.pods["web"], d.pods["api"]
	out, err := startWatch(web.NS, web.role.addr)
	if err != nil {
		return err
	}
	defer out.close()
	in, err := startWatch(box.NS, newborn.addr)
	if err != nil {
		return err
	}
	defer in.close()

	at := netip.AddrPortFrom(newborn.addr, newborn.port)
	flights := []*flight{
		{what: "db-2 -> web:80", allowed: true, s: startStream(box.NS, netip.AddrPortFrom(web.role.addr, 80)), w: out, src: newborn.addr},
		{what: "db-2 -> web:81", s: startStream(box.NS, netip.AddrPortFrom(web.role.addr, 81)), w: out, src: newborn.addr},
		{what: "api -> db-2:5432", allowed: true, s: startStream(api.NS, at), w: in, src: api.role.addr},
		{what: "web -> db-2:5432", s: startStream(web.NS, at), w: in, src: web.role.addr},
	}
	time.Sleep(50 * time.Millisecond) // the senders run
	err = d.node.AddSandbox(ctx, box)
	for _, f := range flights {
		f.mark()
	}
	if err == nil {
		time.Sleep(afterADD)
	}
	land(ctx, flights)
	if err != nil {
		return err
	}
	d.box = box
	d.out.say("ADD took %d ms. Connections that were tried until it returned and after it:", box.Took.Milliseconds())
	d.report(flights)
	return nil
}

// flight is one sender and what became of its packets, before ADD returned and after.
type flight struct {
	what    string
	allowed bool
	s       *stream
	w       *watch
	src     netip.Addr

	sentBefore, arrivedBefore int64
	sentAfter, arrivedAfter   int64
	err                       error
}

// mark notes what was so when ADD returned: what has arrived, then what was sent. A packet between the
// two, which was sent before, counts as one that arrived after ADD: if it is forbidden, against us.
func (f *flight) mark() {
	f.err = f.w.look()
	f.arrivedBefore = f.w.from(f.src, f.s.to.Port())
	f.sentBefore = f.s.sent.Load()
}

// land stops the senders and waits for what is on its way.
func land(ctx context.Context, flights []*flight) {
	for _, f := range flights {
		f.sentAfter = f.s.end() - f.sentBefore
	}
	for _, f := range flights {
		f.collect(ctx)
	}
}

func (f *flight) collect(ctx context.Context) {
	_ = eventually(ctx, func() error { // what is allowed arrives; what is not has the same time
		if err := f.w.look(); err != nil {
			return err
		}
		f.arrivedAfter = f.w.from(f.src, f.s.to.Port()) - f.arrivedBefore
		if f.allowed && f.arrivedAfter < f.sentAfter {
			return errNotYet
		}
		return nil
	})
}

func (d *demo) report(flights []*flight) {
	var err error
	fmt.Fprintln(d.out.to)
	d.out.say("%s", d.out.paint(faint, fmt.Sprintf("%-16s  %-9s    %-17s    %s", "", "", "until ADD returned", "after ADD returned")))
	d.out.say("%s", d.out.paint(faint, fmt.Sprintf("%-16s  %-9s  %8s  %9s  %9s  %9s", "connection", "policy", "tried", "arrived", "tried", "arrived")))
	for _, f := range flights {
		word := "forbidden"
		if f.allowed {
			word = "allowed"
		}
		d.out.say("%-16s  %-9s  %8d  %9d  %9d  %9d", f.what, word, f.sentBefore, f.arrivedBefore, f.sentAfter, f.arrivedAfter)
		err = errors.Join(err, f.err)
	}
	fmt.Fprintln(d.out.to)
	allowed, forbidden, control := true, true, true
	for _, f := range flights {
		if f.allowed {
			allowed = allowed && f.sentAfter > 50 && f.arrivedAfter >= f.sentAfter
			continue
		}
		forbidden = forbidden && f.sentAfter > 50 && f.arrivedAfter == 0
		control = control && f.arrivedBefore > 0
	}
	d.out.fact(err == nil && forbidden, "once ADD has returned not one forbidden packet arrives, neither out of the pod nor into it")
	d.out.fact(err == nil && allowed, "and every allowed one does")
	d.out.fact(err == nil && control, "the senders work: while only ptp had run, before latch did, even the forbidden ones arrived")
	d.out.say("    (a runtime starts nothing in a pod before ADD returns; these senders were put there to prove it)")
}
