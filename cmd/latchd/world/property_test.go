package world

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// history is, for each object, its versions in order; a nil version is its deletion.
type history struct {
	first    apis.Object // for the name
	versions []apis.Object
}

// generator makes random histories. Each object ends in a version that does not depend on earlier ones,
// and what selects by memory on purpose (endpoints objects without their policy) keeps its list.
type generator struct{ *rand.Rand }

func (g generator) pick(choices ...string) string { return choices[g.IntN(len(choices))] }
func (g generator) labels() string                { return g.pick("app=a", "app=b", "app=a tier=x", "") }
func (g generator) namespace() string             { return g.pick("t1", "t2") }

// add makes a history of up to three versions. With temporary it ends in a deletion.
func (g generator) add(hs []history, temporary bool, make func() apis.Object) []history {
	h := history{first: make()}
	for range g.IntN(3) {
		h.versions = append(h.versions, make())
		if g.IntN(4) == 0 {
			h.versions = append(h.versions, nil)
		}
	}
	if temporary {
		h.versions = append(h.versions, make(), nil)
	} else {
		h.versions = append(h.versions, make())
	}
	return append(hs, h)
}

func (g generator) histories() []history {
	var hs []history
	for i := range 5 {
		name, namespace := fmt.Sprintf("pod%d", i), g.namespace()
		hs = g.add(hs, g.IntN(4) == 0, func() apis.Object {
			return makePod(name, g.labels(), func(p *corev1.Pod) {
				p.Namespace = namespace
				if g.IntN(6) == 0 {
					p.Spec.NodeName = "n2"
				}
				if g.IntN(6) == 0 {
					terminating(p)
				}
			})
		})
	}
	for _, name := range []string{"t1", "t2"} {
		hs = g.add(hs, g.IntN(3) == 0, func() apis.Object {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelsOf(g.labels())}}
		})
	}
	for i := range 4 {
		hs = g.addPolicy(hs, fmt.Sprintf("p%d", i))
	}
	return hs
}

// addPolicy adds a policy with its endpoints objects: whole, pending, temporary or without its object.
func (g generator) addPolicy(hs []history, name string) []history {
	kind, namespace := g.pick(apis.KindNetworkPolicy, apis.KindApplicationNetworkPolicy, apis.KindClusterNetworkPolicy), g.namespace()
	shape := g.pick("whole", "whole", "pending", "temporary", "endpoints")
	list := g.pick("pod0", "pod1", "pod2")
	selector := pointer(selectorOf(g.labels()))
	if shape != "endpoints" {
		hs = g.add(hs, shape == "temporary", func() apis.Object {
			switch kind {
			case apis.KindNetworkPolicy:
				p := makeNP(name, g.labels(), g.pick("I", "E", "IE", ""))
				p.Namespace = namespace
				return p
			case apis.KindApplicationNetworkPolicy:
				p := makeANP(name, g.labels(), g.pick("I", "E", "IE", ""))
				p.Namespace = namespace
				return p
			}
			return makeCNP(name, v1alpha1.Subject{Pods: &v1alpha1.NamespacedPod{
				NamespaceSelector: selectorOf(g.labels()), PodSelector: selectorOf(g.labels()),
			}})
		})
	}
	if shape == "pending" {
		return hs
	}
	endpoint := []v1alpha1.PodEndpoint{{Namespace: namespace, Name: list, HostIP: nodeIP}}
	for i := range 1 + g.IntN(3) {
		chunk := fmt.Sprintf("%s-%d", name, i)
		before := len(hs)
		hs = g.add(hs, shape == "temporary" || shape == "whole" && i > 0 && g.IntN(3) == 0, func() apis.Object {
			if kind == apis.KindClusterNetworkPolicy {
				return makeCPE(chunk, name, func(o *v1alpha1.ClusterPolicyEndpoint) {
					o.Spec.Subject = &v1alpha1.Subject{Namespaces: selector}
					o.Spec.PodSelectorEndpoints = endpoint
					o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{{
						CIDR: g.cidr(), Action: v1alpha1.Action(g.pick("Accept", "Deny", "Pass")),
					}}
				})
			}
			return makePE(chunk, g.pick("I", "E", "IE", ""), ofPolicy(kind, name), in(g.cidr()), out(g.cidr(), g.cidr()), func(o *v1alpha1.PolicyEndpoint) {
				o.Namespace, o.Spec.PolicyRef.Namespace = namespace, namespace
				o.Spec.PodSelector, o.Spec.PodSelectorEndpoints = selector, endpoint
			})
		})
		if shape == "endpoints" { // no deletions: who is listed must not change
			hs[before].versions = hs[before].versions[len(hs[before].versions)-1:]
		}
	}
	return hs
}

func (g generator) cidr() string {
	return fmt.Sprintf("10.9.%d.0/%d", g.IntN(3), g.IntN(9)+24)
}

// checkHistory plays a random history in a random order. After every event, each identifier whose desired
// state changed must have been named. At the end, when everything has settled, the state is the one of a
// World that saw the last versions only.
func checkHistory(t *testing.T, seed uint64) {
	t.Helper()
	g := generator{rand.New(rand.NewPCG(seed, 1))}
	hs := g.histories()
	clock := &clock{now: time.Unix(1000, 0)}
	opts := Options{NodeName: "n1", Now: clock.Now, Mode: Mode(g.pick("standard", "strict")), PodsComplete: g.IntN(2) == 0}
	complete := [][]string{nil, {apis.KindNetworkPolicy}, {apis.KindNetworkPolicy, apis.KindClusterNetworkPolicy}}[g.IntN(3)]
	w := New(opts)
	last := snapshot(w)
	step := func(what string, affected []identity.Identifier) {
		t.Helper()
		now := snapshot(w)
		named := map[identity.Identifier]bool{}
		for _, id := range affected {
			named[id] = true
		}
		for id, d := range now {
			if !named[id] && !reflect.DeepEqual(last[id], d) {
				t.Errorf("seed %d: %s changes %s without naming it:\n%s", seed, what, id, cmp.Diff(last[id], d, comparePrefixes...))
			}
		}
		for id := range last {
			if _, ok := now[id]; !ok && !named[id] {
				t.Errorf("seed %d: %s ends %s without naming it", seed, what, id)
			}
		}
		last = now
	}
	gone := func(of *World) { // an API server does not have what was not delivered
		for _, kind := range complete {
			for _, ref := range of.Orphans(kind) {
				if ids := of.Gone(ref, clock.now); of == w {
					step("Gone", ids)
				}
			}
		}
	}
	left := make([]history, len(hs))
	copy(left, hs)
	syncAt := g.IntN(20)
	for n := 0; len(left) > 0; n++ {
		if n == syncAt {
			step("Synced", w.Synced(complete...))
		}
		switch g.IntN(8) {
		case 0:
			clock.Add(time.Duration(g.IntN(3000)) * ms)
			ids, _ := w.Due()
			step("Due", ids)
			gone(w)
			continue
		case 1:
			for _, id := range w.Identifiers() {
				if g.IntN(2) == 0 {
					w.SetRunning(id, g.IntN(3) > 0)
				}
			}
			last = snapshot(w)
			continue
		}
		i := g.IntN(len(left))
		h := &left[i]
		if v := h.versions[0]; v != nil {
			step(fmt.Sprintf("upsert of %T %s", v, v.GetName()), w.Upsert(v))
		} else {
			step(fmt.Sprintf("deletion of %T %s", h.first, h.first.GetName()), w.Delete(h.first))
		}
		if h.versions = h.versions[1:]; len(h.versions) == 0 {
			left = append(left[:i], left[i+1:]...)
		}
	}
	step("Synced", w.Synced(complete...))
	fresh := New(opts)
	var final []apis.Object
	for _, h := range hs {
		if v := h.versions[len(h.versions)-1]; v != nil {
			final = append(final, v)
		}
	}
	g.Shuffle(len(final), func(i, j int) { final[i], final[j] = final[j], final[i] })
	fresh.Replace(final)
	fresh.Synced(complete...)
	for range 2 {
		clock.Add(time.Minute)
		ids, _ := w.Due()
		step("Due", ids)
		gone(w)
		fresh.Due()
		gone(fresh)
	}
	have := snapshot(w)
	for id, want := range snapshot(fresh) {
		got := have[id]
		for _, d := range []*Desired{&want, &got} {
			d.CreateKey, d.RunningKey, d.Problems = "", "", nil
			if len(d.Pending) > 0 { // what runs keeps what it has, which is memory
				d.Running, d.SameRunning, d.HoldRunning = policy.Input{}, false, false
			}
		}
		if diff := cmp.Diff(want, got, comparePrefixes...); diff != "" {
			t.Errorf("seed %d: %s depends on the order of events: from the last versions -, from all of them +:\n%s", seed, id, diff)
		}
	}
}

func snapshot(w *World) map[identity.Identifier]Desired {
	out := map[identity.Identifier]Desired{}
	for _, id := range w.Identifiers() {
		out[id], _ = w.Desired(id)
	}
	return out
}

func TestHistories(t *testing.T) {
	for seed := range uint64(400) {
		checkHistory(t, seed)
	}
}

func FuzzHistories(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkHistory(t, seed) })
}
