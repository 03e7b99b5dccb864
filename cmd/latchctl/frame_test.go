package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/latch-cni/latch/shared/view"
)

func manyPods(n int) sample {
	s := sample{Time: time.Now(), Node: view.Status{Node: "n1", Mode: "standard", Watcher: view.Watcher{Running: true, Ready: true, Spoke: ago(0)}}, New: 30, Drops: 1234567, FlowLog: true}
	for i := range n {
		p := podDB()
		p.Name = fmt.Sprintf("a-deployment-with-a-long-name-7c9d8f6b5-%05d", i)
		s.Pods = append(s.Pods, podSample{Pod: p, New: 1.25, Drops: float64(i), Shared: i%2 == 0})
		s.Denied = append(s.Denied, denied{p.Key(), "ingress", "fd00:1234:5678:9abc:def0:1234:5678:9abc -> [fd00:1234:5678:9abc:def0:1234:5678:9abd]:5432/TCP", "shop/db (isolates)", uint64(n - i)})
	}
	return s
}

// Whatever there is to show, and however little room, the frame fits, and no part crowds out another.
func TestFrameFits(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {200, 60}, {132, 43}, {40, 10}, {20, 3}, {1, 1}} {
		for _, pods := range []int{0, 1, 5, 15, 300} {
			lines := frame(manyPods(pods), size[0], size[1])
			if len(lines) > size[1] {
				t.Errorf("%d pods on %v: %d lines", pods, size, len(lines))
			}
			for _, line := range lines {
				if utf8.RuneCountInString(line) > size[0] {
					t.Errorf("%d pods on %v: %q is too wide", pods, size, line)
				}
			}
			if size[0] < 80 {
				continue
			}
			all := strings.Join(lines, "\n")
			for _, want := range []string{"latchd ready", fmt.Sprintf("pods %d", pods), "POD ", "DENIED ", "q quits"} {
				if !strings.Contains(all, want) {
					t.Errorf("%d pods on %v: no %q in\n%s", pods, size, want, all)
				}
			}
			if pods == 300 && (!strings.Contains(all, "more") || strings.Count(all, "NetworkPolicy base") < 5 && size[0] > 150) {
				t.Errorf("%v:\n%s", size, all)
			}
		}
	}
}

// Without the flow log the counters say at least which pod and why.
func TestFrameWithoutFlowLog(t *testing.T) {
	s := manyPods(1)
	s.FlowLog, s.Denied = false, []denied{{Pod: "shop/db", Direction: "ingress", By: "policy", Packets: 7}}
	if all := strings.Join(frame(s, 80, 24), "\n"); !containsAll(all, []string{"turn on the flow log", "7  ingress  shop/db"}) {
		t.Error(all)
	}
}

func TestRates(t *testing.T) {
	slot := uint32(3)
	counter := func(verdict string, packets uint64) view.Counter {
		return view.Counter{Slot: &slot, Pods: []string{"shop/db"}, Direction: "ingress", Reason: "policy", Verdict: verdict, Packets: packets}
	}
	s := &sampler{}
	begin := time.Now()
	s.rates([]view.Counter{counter("allow", 100), counter("deny", 50)}, begin)
	got, drops := s.rates([]view.Counter{counter("allow", 120), counter("deny", 80)}, begin.Add(2*time.Second))
	if got[slot] != [2]float64{10, 15} || len(drops) != 1 || drops[0].Packets != 30 {
		t.Errorf("got %v, %v", got, drops)
	}
	if got, _ := s.rates([]view.Counter{counter("deny", 1)}, begin.Add(3*time.Second)); got[slot] != [2]float64{} {
		t.Errorf("a slot that begins anew has rate %v", got[slot])
	}
	if got, _ := s.rates([]view.Counter{counter("deny", 1), counter("allow", 5)}, begin.Add(4*time.Second)); got[slot] != [2]float64{5, 0} {
		t.Errorf("the first of their kind: %v", got[slot])
	}
}
