package stage

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Watch sends to and from pods all the time: datagrams that every policy allows, and datagrams that none
// does. It holds for pods that are in force from before it begins until it has stopped.
type Watch struct {
	pods   []*Pod
	before []seen
	sent   []atomic.Int64 // by pod, to port Always, each way
	end    chan struct{}
	done   sync.WaitGroup
	once   sync.Once
}

type seen struct{ outAlways, inAlways, outNever, inNever int64 }

func (p *Pod) seen() seen {
	return seen{p.Out.Of(Always), p.In.Of(Always), p.Out.Of(Never), p.In.Of(Never)}
}

// NewWatch begins to send one datagram of each kind each way in every period to every pod.
func NewWatch(period time.Duration, pods ...*Pod) *Watch {
	w := &Watch{pods: pods, sent: make([]atomic.Int64, len(pods)), end: make(chan struct{})}
	for _, p := range pods {
		w.before = append(w.before, p.seen())
	}
	w.done.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-w.end:
				return
			case <-tick.C:
			}
			for i, p := range w.pods {
				if p.Send(Always) == nil && p.Receive(Always) == nil {
					w.sent[i].Add(1)
				}
				_, _ = p.Send(Never), p.Receive(Never)
			}
		}
	})
	return w
}

// Verdicts are what a watch has seen.
type Verdicts struct {
	Sent    int64 // allowed by every policy
	Lost    int64 // of these
	Slipped int64 // arrived though no policy allows them
}

// Err is what of a watch broke a promise.
func (v Verdicts) Err() error {
	if v.Lost > 0 || v.Slipped > 0 {
		return fmt.Errorf("of %d datagrams that every policy allows %d were lost, and %d that none allows arrived", v.Sent, v.Lost, v.Slipped)
	}
	return nil
}

// Stop ends the sending and adds up. Safe to call again.
func (w *Watch) Stop() (v Verdicts) {
	w.once.Do(func() { close(w.end) })
	w.done.Wait()
	for range 50 { // what is on its way
		v = w.sum()
		if v.Lost == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return v
}

func (w *Watch) sum() (v Verdicts) {
	for i, p := range w.pods {
		sent, was, now := w.sent[i].Load(), w.before[i], p.seen()
		v.Sent += 2 * sent
		v.Lost += max(0, sent-(now.outAlways-was.outAlways)) + max(0, sent-(now.inAlways-was.inAlways))
		v.Slipped += now.outNever - was.outNever + now.inNever - was.inNever
	}
	return v
}

// Churn writes the next version of a policy in every period, until it is stopped. The version that is in
// force at the end is returned by stop.
func (s *Stage) Churn(ctx context.Context, p Policy, period time.Duration) (stop func() (Policy, error)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				done <- nil
				return
			case <-tick.C:
			}
			p.Version++
			if err := s.Write(p); err != nil {
				done <- err
				return
			}
		}
	}()
	return func() (Policy, error) {
		cancel()
		err := <-done
		return p, err
	}
}

// Follows tells whether the pod is judged by a version of a policy: its own port is open, the others are not.
func (p *Pod) Follows(version int, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		err := p.follows(version)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (p *Pod) follows(version int) error {
	mine := uint16(Versions + version%16)
	for port := uint16(Versions); port <= lastPort; port++ {
		if port == mine {
			continue
		}
		before := p.Out.Of(port)
		if err := p.Send(port); err != nil {
			return err
		}
		if err := arrives(p.Send, &p.Out, Always, time.Second); err != nil {
			return fmt.Errorf("pod %s: %w", p.Name, err)
		}
		if p.Out.Of(port) != before {
			return fmt.Errorf("pod %s: port %d of another version than %d is open", p.Name, port, version)
		}
	}
	if err := arrives(p.Send, &p.Out, mine, 200*time.Millisecond); err != nil {
		return fmt.Errorf("pod %s, version %d: %w", p.Name, version, err)
	}
	return nil
}
