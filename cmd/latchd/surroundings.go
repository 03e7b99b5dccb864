package main

import (
	"context"
	"log/slog"
	"sync"

	"github.com/latch-cni/latch/cmd/latchd/install"
	"github.com/latch-cni/latch/shared/foreign"
	"github.com/latch-cni/latch/shared/state"
)

// surroundings are what enforcement depends on and others write, too: the CNI configuration and what
// another policy agent has on the interfaces. They are watched from the first moment on, whatever
// policy and kernel say.
type surroundings struct {
	place  *install.Follower // nil if the configuration is left alone
	others *foreign.Watcher

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// startSurroundings refuses to start beside another policy agent.
func startSurroundings(ctx context.Context, o options, log *slog.Logger) (*surroundings, error) {
	if !o.takeOver {
		agent, err := foreign.Find(o.bpffs)
		if err != nil {
			return nil, err
		}
		if err := foreign.Refuse(agent); err != nil {
			return nil, err
		}
	}
	s := &surroundings{others: &foreign.Watcher{Bpffs: o.bpffs, TakeOver: o.takeOver, Log: log}}
	ctx, s.cancel = context.WithCancel(ctx)
	s.wg.Go(func() { s.others.Run(ctx) })
	if o.install.ConfDir != "" {
		o.install.Log = log
		s.place = install.NewFollower(o.install)
		s.wg.Go(func() { s.place.Run(ctx) })
	}
	return s, nil
}

func (s *surroundings) stop() {
	s.cancel()
	s.wg.Wait()
}

// problems are for the node's status.
func (s *surroundings) problems() []state.Problem {
	var all []state.Problem
	if p := s.others.Problem(); p != "" {
		all = append(all, state.Problem{Object: foreign.AgentName, Message: p})
	}
	if s.place != nil {
		if p := s.place.Problem(); p != "" {
			all = append(all, state.Problem{Object: state.ObjectConfiguration, Message: p})
		}
	}
	return all
}
