package flowlog

import (
	"log/slog"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// refreshPause is how often records are read at most.
const refreshPause = 200 * time.Millisecond

// pod is whose a pod id is.
type pod struct {
	namespace, name string
	identifier      identity.Identifier
}

// resolver finds names for the numbers in events. What the records of the last refresh say goes before
// what those of the one before said: events may be older than a record.
type resolver struct {
	store  state.Store
	log    *slog.Logger
	at     time.Time
	pods   [2]map[uint32]pod
	source [2]map[identity.Identifier]map[policy.RuleID]policy.Source
}

// refresh reads the records, unless they were read a moment ago.
func (r *resolver) refresh() bool {
	if time.Since(r.at) < refreshPause {
		return false
	}
	pods := map[uint32]pod{}
	atts, err := r.store.ListAttachments()
	if err != nil {
		r.log.Warn("flow log: some pods have no name", "error", err)
	}
	for _, a := range atts {
		for _, in := range a.Interfaces {
			pods[in.PodID] = pod{a.PodNamespace, a.PodName, a.Identifier}
		}
	}
	sources := map[identity.Identifier]map[policy.RuleID]policy.Source{}
	recs, err := r.store.ListIdentifiers()
	if err != nil {
		r.log.Warn("flow log: some rules have no name", "error", err)
	}
	for _, rec := range recs {
		of := map[policy.RuleID]policy.Source{}
		for _, ref := range []state.SlotRef{rec.Create, rec.Running} {
			for _, s := range ref.Sources {
				of[s.ID] = s
			}
		}
		sources[rec.Identifier] = of
	}
	r.pods = [2]map[uint32]pod{pods, r.pods[0]}
	r.source = [2]map[identity.Identifier]map[policy.RuleID]policy.Source{sources, r.source[0]}
	r.at = time.Now()
	return true
}

func (r *resolver) pod(id uint32) (pod, bool) {
	for _, pods := range r.pods {
		if p, ok := pods[id]; ok {
			return p, true
		}
	}
	return pod{}, false
}

func (r *resolver) rule(id identity.Identifier, rule policy.RuleID) (policy.Source, bool) {
	for _, sources := range r.source {
		if s, ok := sources[id][rule]; ok {
			return s, true
		}
	}
	return policy.Source{}, false
}

// resolve makes a line of an event. It reports false when a record that it needs may be about to be
// written; the line is then as good as it can be now.
func (r *resolver) resolve(e *bpf.Event) (line, bool) {
	l := lineOf(e)
	whole := true
	p, ok := r.pod(e.Pod)
	if ok {
		l.Namespace, l.Pod = p.namespace, p.name
	} else if e.Pod != 0 {
		whole = false
	}
	rule := policy.RuleID(e.Result & bpf.ResRuleMask)
	switch {
	case rule != 0:
		s, ok := r.rule(p.identifier, rule)
		if !ok {
			return l, false
		}
		l.Tier, l.Isolation = s.Tier.String(), s.Isolation
		l.Policy = &s.Policy
	case byRules(bpf.Reason(e.Reason)):
		l.Tier = policy.TierDefault.String()
	}
	return l, whole
}

// byRules tells whether a verdict is one of the rules.
func byRules(r bpf.Reason) bool {
	return r == bpf.ReasonPolicy || r == bpf.ReasonReply || r == bpf.ReasonCut
}
