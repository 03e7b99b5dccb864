package source

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

var errAny = errors.New("any")

// TestMemoryOfOtherNodes holds nothing of 100,000 changes of pods on other nodes, and delivers none.
func TestMemoryOfOtherNodes(t *testing.T) {
	r := newRecorder()
	s := newScope()
	s.setAddrs(here)
	f := newFeed(r, s)
	var endpoints *kind
	for _, k := range kindsOf("n1") {
		if k.name == apis.KindPolicyEndpoint {
			endpoints = k
		}
	}
	st := &store{kind: endpoints, scope: s, objects: map[string]apis.Object{}, changed: f.change, listed: func() {}}
	one := func(chunk, round int) *v1alpha1.PolicyEndpoint {
		e := endpointOf("t1", fmt.Sprint("np-", chunk))
		e.Spec.PodIsolation = []networkingv1.PolicyType{"Ingress"}
		for i := range 200 {
			e.Spec.PodSelectorEndpoints = append(e.Spec.PodSelectorEndpoints, v1alpha1.PodEndpoint{
				HostIP: fmt.Sprintf("10.0.%d.%d", 1+i%7, i), PodIP: fmt.Sprintf("10.1.%d.%d", round%250, i),
				Namespace: "t1", Name: fmt.Sprintf("web-%d-%d", round, i)})
		}
		return e
	}
	for chunk := range 50 {
		if err := st.Add(one(chunk, 0)); err != nil {
			t.Fatal(err)
		}
	}
	before, delivered := heap(), r.upserts
	for round := range 500 { // 200 pods each
		if err := st.Update(one(round%50, round+1)); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	if r.upserts != delivered {
		t.Errorf("%d changes delivered that are none for this node", r.upserts-delivered)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
