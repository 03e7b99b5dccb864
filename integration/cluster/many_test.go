package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// testMany changes 100,000 pods of other nodes, and gives a policy 50 endpoints objects of 200 peers.
// Neither may cost memory beyond what the policy itself needs.
func testMany(t *testing.T, cp *controlPlane) {
	s := newScene(t, cp, nodeOptions{args: []string{"--log-level", "info"}})
	chunk := func(policy string, i int, spec object) object {
		return object{"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "PolicyEndpoint",
			"metadata": object{"name": fmt.Sprintf("%s-%05d", policy, i), "namespace": s.ns, "ownerReferences": []object{{
				"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "name": policy, "uid": s.policy.uid}}},
			"spec": merged(object{"policyRef": object{"name": policy, "namespace": s.ns}, "podIsolation": []string{"Ingress"}}, spec)}
	}
	elsewhere := func(i, round int) object {
		var listed []object
		for j := range 200 {
			listed = append(listed, object{"name": fmt.Sprintf("web-%d-%d-%d", i, round, j), "namespace": s.ns,
				"podIP": fmt.Sprintf("10.%d.%d.%d", i, round, j), "hostIP": fmt.Sprintf("10.255.%d.%d", i, j)})
		}
		return chunk("far", i, object{"podSelectorEndpoints": listed, "podSelector": object{"matchLabels": object{"app": "far"}}})
	}
	far := s.newPolicy("far", object{"app": "far"})
	far.applyPolicy()
	s.each(50, func(i int) error { return cp.apply(elsewhere(i, 0)) })
	time.Sleep(time.Second)
	before := s.rss()
	begin := time.Now()
	for round := range 10 {
		s.each(50, func(i int) error { return cp.apply(elsewhere(i, round+1)) })
	}
	s.settled()
	grown := s.rss() - before
	t.Logf("100,000 pods of other nodes changed in %v: %d KiB RSS, %+d KiB", time.Since(begin).Round(time.Second), before+grown, grown)
	if grown > 20<<10 {
		t.Errorf("RSS grew by %d KiB, want at most 20 MiB", grown)
	}

	before = s.rss()
	begin = time.Now()
	s.each(50, func(i int) error {
		var peers []object
		for j := range 200 {
			peers = append(peers, object{"cidr": fmt.Sprintf("10.%d.%d.0/24", i, j), "ports": []object{{"protocol": "TCP", "port": 1000 + j}}})
		}
		return cp.apply(chunk("n", i, object{"ingress": peers}))
	})
	s.settled()
	grown = s.rss() - before
	t.Logf("50 endpoints objects of 200 peers came in %v: %+d KiB RSS", time.Since(begin).Round(100*time.Millisecond), grown)
	s.steady("a policy of 10,000 peers")
}

func merged(a, b object) object {
	for k, v := range b {
		a[k] = v
	}
	return a
}

// each calls f for 0..n-1, some at a time.
func (s *scene) each(n int, f func(int) error) {
	s.t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	slots := make(chan struct{}, 8)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-slots
		})
	}
	wg.Wait()
	for _, err := range errs {
		s.must(err)
	}
}

// settled waits until latchd has taken over everything that was written before: a pod created last has
// its record, and a moment passed for the endpoints objects, which are another watch.
func (s *scene) settled() {
	s.t.Helper()
	s.next++
	s.pod(fmt.Sprintf("last-%d", s.next), object{"app": "last"}).awaitRecord()
	time.Sleep(2 * time.Second)
}

// rss is latchd's resident memory in KiB.
func (s *scene) rss() int {
	s.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Latchd.PID()))
	s.must(err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			s.must(err)
			return kib
		}
	}
	s.t.Fatal("no VmRSS")
	return 0
}
