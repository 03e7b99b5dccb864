package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/latch-cni/latch/shared/view"
)

// sample is what top shows.
type sample struct {
	Time    time.Time   `json:"time"`
	Node    view.Status `json:"node"`
	Pods    []podSample `json:"pods"`
	Flows   int         `json:"flows"` // live ones
	New     float64     `json:"newFlowsPerSecond"`
	Drops   float64     `json:"dropsPerSecond"`
	FlowLog bool        `json:"flowLog"` // Denied is from the flow log; else from the counters
	Denied  []denied    `json:"denied"`
}

type podSample struct {
	view.Pod
	New    float64 `json:"newFlowsPerSecond"`
	Drops  float64 `json:"dropsPerSecond"`
	Shared bool    `json:"shared"` // the rates are those of several pods
}

// denied is a pair that is denied, or with the flow log off a pod and a reason.
type denied struct {
	Pod       string `json:"pod"`
	Direction string `json:"direction"`
	What      string `json:"what"` // 10.0.0.1 -> 10.0.2.0:5432/TCP
	By        string `json:"by"`
	Packets   uint64 `json:"packets"` // within deniedFor, or with the flow log off since the last sample
}

// deniedFor is how long a denied packet counts.
const deniedFor = time.Minute

// sampler measures. Rates are those since its last sample.
type sampler struct {
	node     *view.Node
	flows    *view.Follower // nil: off
	owner    func(netip.Addr) (namespace, pod string)
	last     map[counted]uint64
	at       time.Time
	recent   []view.Event // denied, within deniedFor
	live     int
	liveFrom time.Time
}

// counted is a counter, apart from the names of its pods.
type counted struct {
	slot                       uint32
	direction, verdict, reason string
}

const maxRecent = 20000

func newSampler(n *view.Node) *sampler {
	s := &sampler{node: n, owner: n.Owner()}
	if path, err := n.FlowLog(); err == nil {
		if s.flows, err = view.Follow(path); err != nil {
			s.flows = nil
		}
	}
	return s
}

func (s *sampler) close() {
	if s.flows != nil {
		_ = s.flows.Close()
	}
}

func (s *sampler) sample() (sample, error) {
	out := sample{Time: time.Now(), FlowLog: s.flows != nil, Denied: []denied{}}
	var err error
	if out.Node, err = s.node.Status(); err != nil {
		return out, err
	}
	pods, err := s.node.Pods()
	if err != nil && len(pods) == 0 {
		return out, err
	}
	counters, _, err := s.node.Counters(nil)
	if err != nil && !errors.Is(err, view.ErrNotPinned) {
		return out, err
	}
	rates, byReason := s.rates(counters, out.Time)
	sharing := map[uint32]int{}
	for _, p := range pods {
		sharing[p.Slot]++
	}
	for _, p := range pods {
		r := rates[p.Slot]
		out.Pods = append(out.Pods, podSample{p, r[0], r[1], sharing[p.Slot] > 1})
	}
	for _, r := range rates {
		out.New, out.Drops = out.New+r[0], out.Drops+r[1]
	}
	slices.SortStableFunc(out.Pods, func(a, b podSample) int {
		return cmp.Or(order(a.Healthy, b.Healthy), cmp.Compare(b.Drops, a.Drops), cmp.Compare(b.New, a.New))
	})
	if s.flows != nil {
		out.Denied, err = s.pairs(out.Time)
	} else {
		out.Denied = byReason
	}
	if out.Time.Sub(s.liveFrom) > 5*topPeriod {
		s.countFlows(out.Time)
	}
	out.Flows = s.live
	return out, err
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// rates are admitted flows and drops a second by slot, and drops by pod and reason.
func (s *sampler) rates(counters []view.Counter, now time.Time) (map[uint32][2]float64, []denied) {
	rates, drops := map[uint32][2]float64{}, []denied{}
	current := map[counted]uint64{}
	passed := now.Sub(s.at).Seconds()
	for _, c := range counters {
		key := counted{noSlot, c.Direction, c.Verdict, c.Reason}
		if c.Slot != nil {
			key.slot = *c.Slot
		}
		current[key] = c.Packets
		before, known := s.last[key]
		if s.last == nil || c.Packets < before || passed <= 0 { // the first sample, or a slot that began anew
			continue
		}
		if !known {
			before = 0
		}
		more := c.Packets - before
		r := rates[key.slot]
		if c.Verdict == "allow" {
			r[0] += float64(more) / passed
		} else {
			r[1] += float64(more) / passed
			if more > 0 {
				drops = append(drops, denied{Pod: names(c.Pods), Direction: c.Direction, By: c.Reason, Packets: more})
			}
		}
		rates[key.slot] = r
	}
	s.last, s.at = current, now
	sortDenied(drops)
	return rates, drops
}

const noSlot = 1<<32 - 1

func names(pods []string) string {
	if len(pods) == 0 {
		return ""
	}
	if len(pods) == 1 {
		return pods[0]
	}
	return fmt.Sprintf("%s +%d", pods[0], len(pods)-1)
}

// pairs counts who was denied within the last minute.
func (s *sampler) pairs(now time.Time) ([]denied, error) {
	err := s.flows.More(func(line []byte) error {
		e, err := view.ParseEvent(line, s.owner)
		if err == nil && e.Verdict == "deny" && now.Sub(e.Time) < deniedFor {
			s.recent = append(s.recent, e)
		}
		return nil
	})
	s.recent = slices.DeleteFunc(s.recent, func(e view.Event) bool { return now.Sub(e.Time) >= deniedFor })
	s.recent = s.recent[max(0, len(s.recent)-maxRecent):]
	pairs := map[denied]uint64{}
	for _, e := range s.recent {
		remote := e
		remote.SrcPort = 0 // each attempt has another
		pairs[denied{Pod: e.Key(), Direction: e.Direction, What: remote.From() + " -> " + e.To() + "/" + e.Protocol, By: e.By()}]++
	}
	all := []denied{}
	for d, n := range pairs {
		d.Packets = n
		all = append(all, d)
	}
	sortDenied(all)
	return all, err
}

func sortDenied(all []denied) {
	slices.SortFunc(all, func(a, b denied) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.What, b.What), cmp.Compare(a.By, b.By))
	})
}

func (s *sampler) countFlows(now time.Time) {
	tables, err := s.node.Fill()
	if err != nil {
		return // told by the pods
	}
	s.live, s.liveFrom = 0, now
	for _, f := range tables {
		if f.Flows {
			s.live += f.Used
		}
	}
}
