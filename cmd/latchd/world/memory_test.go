package world

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

// TestNothingStays plays everything that leaves a trace, and deletes it: no map may keep an entry, but
// for the names of policies that are gone.
func TestNothingStays(t *testing.T) {
	s := newStage(t)
	s.Synced()
	everything := v1alpha1.Subject{Namespaces: pointer(selectorOf(""))}
	s.Upsert(makeNP("p", "", "IE"), makePE("x", "IE", in("10.9.0.1")), makePE("y", "I", listed("a1", "ghost")),
		makeCNP("c", everything), makeCPE("c-1", "c"))
	for i := range 100 {
		p := makePod(fmt.Sprint("pod", i), fmt.Sprint("app=", i))
		s.Upsert(p, makePE("q-1", "IE", ofPolicy(apis.KindNetworkPolicy, "q"), copySelector(""), listed(p.Name)))
		s.SetRunning(idOf(fmt.Sprint("app=", i)), true)
		s.Upsert(makePE("x", "IE", in(fmt.Sprint("10.9.1.", i))))
		s.SetRunning(idOf(fmt.Sprint("app=", i)), false)
		s.Delete(p)
	}
	for p := range s.policiesIn["t1"] {
		if len(p.everListed) > 1 { // a1
			t.Errorf("%v remembers %d listed pods that are gone", p.ref, len(p.everListed)-1)
		}
	}
	s.Replace(nil)
	w := reflect.ValueOf(s.World).Elem()
	for i := range w.NumField() {
		f, name := w.Field(i), w.Type().Field(i).Name
		if f.Kind() == reflect.Map && f.Len() > 0 && name != "seen" {
			t.Errorf("%s keeps %d entries", name, f.Len())
		}
	}
	if len(s.seen) != 2 {
		t.Errorf("names of gone policies: %v, want p and c", s.seen)
	}
}

// The rules of a policy with many endpoints objects are held once, also after edits, and stay what they are.
func TestRulesOfChunksAreHeldOnce(t *testing.T) {
	s := newStage(t)
	s.Synced()
	s.Upsert(makeNP("p", "", "I"), makePE("x", "I", in("10.9.0.1")), makePE("y", "I", in("10.9.0.2")), makePod("pod", "app=a"))
	for _, edit := range []string{"10.9.0.3", "10.9.0.4"} {
		s.Upsert(makePE("y", "I", in(edit), in("10.9.0.5")))
		s.pass(time.Minute) // what has left is gone
		d, _ := s.Desired(idOf("app=a"))
		rules := d.Create.Policies[0].Rules[policy.Ingress]
		for p := range s.policiesIn["t1"] {
			n := 0
			for _, c := range p.sorted() {
				own := c.rules[policy.Ingress]
				if &own[0] != &rules[n] {
					t.Errorf("rules of %s are held twice", c.name)
				}
				n += len(own)
			}
			if n != len(rules) {
				t.Errorf("%d rules of %d are held", n, len(rules))
			}
		}
	}
}

// BenchmarkEdit changes one of 51 endpoints objects of 1000 rules each, and asks for the desired state of
// 1000 identifiers that the policy selects.
func BenchmarkEdit(b *testing.B) {
	w := New(Options{})
	w.Upsert(makeNP("p", "", "I"))
	chunk := func(n, version int) apis.Object {
		o := makePE(fmt.Sprint("x-", n), "I")
		for i := range 1000 {
			o.Spec.Ingress = append(o.Spec.Ingress, rule(fmt.Sprintf("10.%d.%d.%d TCP/%d", n, i/200, i%200, 1+version%60000)))
		}
		return o
	}
	for n := range 51 {
		w.Upsert(chunk(n, 0))
	}
	for i := range 1000 {
		w.Upsert(makePod(fmt.Sprint("pod", i), fmt.Sprint("app=", i)))
	}
	w.Synced()
	ids := w.Identifiers()
	for version := 0; b.Loop(); version++ {
		b.StopTimer()
		o := chunk(7, version)
		b.StartTimer()
		w.Upsert(o)
		for _, id := range ids {
			if _, ok := w.Desired(id); !ok {
				b.Fatal("identifier is gone")
			}
		}
	}
}
