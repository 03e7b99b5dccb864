package stage

import (
	"fmt"
	"sync"
	"time"
)

// talkPort is the pods' side of a talk. No policy lets anything in there.
const talkPort = 7000

// Talk keeps one flow of each pod busy: the pod asks from one port, and the outside answers to it. Answers
// come in as part of the flow, or not at all. The pods must not be sent to by anybody else.
type Talk struct {
	s      *Stage
	pods   []*Pod
	before []int64
	asked  int64
	end    chan struct{}
	done   sync.WaitGroup
	once   sync.Once
}

// NewTalk begins a talk, with one question and one answer of each pod in every period.
func (s *Stage) NewTalk(period time.Duration, pods ...*Pod) *Talk {
	t := &Talk{s: s, pods: pods, end: make(chan struct{})}
	for _, p := range pods {
		t.before = append(t.before, p.In.Of(talkPort))
	}
	t.done.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-t.end:
				return
			case <-tick.C:
			}
			for _, p := range t.pods {
				if t.ask(p) == nil && s.out.sendFrom(p.number, ExtAddr, Always, p.Addr(), talkPort) == nil {
					t.asked++
				}
			}
		}
	})
	return t
}

func (t *Talk) ask(p *Pod) error {
	return p.send.sendFrom(p.number, p.Addr(), talkPort, ExtAddr, Always)
}

// Goes requires that every pod gets an answer without having asked again: its flow is alive.
func (t *Talk) Goes(patience time.Duration) error {
	for _, p := range t.pods {
		was := p.In.Of(talkPort)
		for deadline := time.Now().Add(patience); p.In.Of(talkPort) == was; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("pod %s gets no answers any more", p.Name)
			}
		}
	}
	return nil
}

// Stop ends the talk and tells how many answers were sent and how many did not arrive. Safe to call again.
func (t *Talk) Stop() (sent, lost int64) {
	t.once.Do(func() { close(t.end) })
	t.done.Wait()
	for range 50 { // what is on its way
		lost = t.asked
		for i, p := range t.pods {
			lost -= p.In.Of(talkPort) - t.before[i]
		}
		if lost <= 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return t.asked, lost
}
