package attach

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// flood sends from the pod as fast as it can until stopped, and counts what arrives at the node.
type flood struct {
	arrived, sent atomic.Int64
	stop          func()
}

func (g *ground) flood() *flood {
	g.t.Helper()
	in := g.node.PacketConn(g.t, "10.0.0.1:0")
	out := g.pod.PacketConn(g.t, "10.0.0.2:0")
	f := &flood{}
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		for b := make([]byte, 16); ; {
			_, _, err := in.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				f.arrived.Add(1)
			}
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			_, err := out.WriteTo([]byte("x"), in.LocalAddr())
			if errors.Is(err, net.ErrClosed) {
				return
			}
			f.sent.Add(1)
		}
	}()
	f.stop = func() {
		_ = out.Close()
		_ = in.Close()
		<-done
		<-done
	}
	return f
}

// waitFlood is ample for a flood to show its effect.
const waitFlood = 10 * time.Second

func grew(seen uint64, ps []counter) error {
	sum := uint64(0)
	for _, p := range ps {
		sum += p.count()
	}
	if sum < seen+100 {
		return fmt.Errorf("programs dropped %d packets, want %d", sum, seen+100)
	}
	return nil
}

func arrives(f *flood) error {
	if f.arrived.Load() == 0 {
		return fmt.Errorf("nothing arrives of %d packets: this test tests nothing", f.sent.Load())
	}
	return nil
}
