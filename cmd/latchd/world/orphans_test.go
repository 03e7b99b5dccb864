package world

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// TestPolicyObjectGone is D16: what outlives a policy object selects for 5 s as before, then nothing, or
// only when the API server says that the object is gone.
func TestPolicyObjectGone(t *testing.T) {
	np, orphan := []string{"NetworkPolicy t1/p"}, apis.Ref{Kind: apis.KindNetworkPolicy, Namespace: "t1", Name: "p"}
	check := func(s *stage, what string, want []string) {
		s.t.Helper()
		if diff := cmp.Diff(want, s.selected("app=a")); diff != "" {
			s.t.Errorf("%s: want -, have +:\n%s", what, diff)
		}
	}
	t.Run("known and deleted", func(t *testing.T) {
		s := newStage(t)
		s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I", listed("a1")))
		s.Synced()
		s.Delete(makeNP("p", "", ""))
		s.pass(4999 * ms)
		check(s, "in the grace", np)
		if ids := s.pass(1 * ms); !slices.Contains(ids, idOf("app=a")) {
			t.Errorf("due is %v, want the identifier", ids)
		}
		check(s, "after the grace", nil)
		if len(s.Problems()) == 0 {
			t.Error("not reported")
		}
		s.Upsert(makePE("y", "I", copySelector("app=a")))
		check(s, "a late endpoints object", nil)
		s.Upsert(makeNP("p", "app=a", "I"))
		check(s, "created again", np)
	})
	t.Run("deleted with its endpoints, of which one comes late", func(t *testing.T) {
		s := newStage(t)
		s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I"))
		s.Synced()
		s.Delete(makeNP("p", "", ""), makePE("x", ""))
		check(s, "deleted", nil)
		s.Upsert(makePE("x", "I", copySelector("app=a")))
		s.pass(5 * time.Second)
		check(s, "after the grace", nil)
	})
	t.Run("never known, of a kind that is complete", func(t *testing.T) {
		s := newStage(t)
		s.Upsert(makePE("x", "I", listed("a1")))
		s.pass(time.Hour)
		check(s, "not synced", np)
		s.Synced(apis.KindNetworkPolicy)
		s.pass(5 * time.Second)
		if got := s.Orphans(apis.KindNetworkPolicy); !slices.Equal(got, []apis.Ref{orphan}) {
			t.Errorf("orphans are %v", got)
		}
		s.pass(time.Hour)
		check(s, "nobody was asked", np)
		if ids := s.Gone(orphan, s.clock.now); !slices.Contains(ids, idOf("app=a")) {
			t.Errorf("affected are %v, want the identifier", ids)
		}
		check(s, "the API server does not have it", nil)
	})
	t.Run("known and deleted, of a kind that is complete", func(t *testing.T) {
		s := newStage(t)
		s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I", listed("a1")))
		s.Synced(apis.KindNetworkPolicy)
		s.Delete(makeNP("p", "", ""))
		s.pass(4999 * ms)
		if got := s.Orphans(apis.KindNetworkPolicy); len(got) > 0 {
			t.Errorf("in the grace orphans are %v", got)
		}
		s.pass(1 * ms)
		if got := s.Orphans(apis.KindNetworkPolicy); !slices.Equal(got, []apis.Ref{orphan}) {
			t.Errorf("orphans are %v", got)
		}
		if len(s.Problems()) == 0 {
			t.Error("not reported")
		}
		asked := s.clock.now
		s.pass(1 * ms)
		s.Upsert(makePE("x", "I", listed("a1"), in("10.9.0.1")))
		s.Gone(orphan, asked)
		check(s, "written after the API server was asked", np)
		s.pass(5 * time.Second)
		s.Gone(orphan, s.clock.now)
		check(s, "the API server does not have it", nil)
		s.pass(time.Hour)
		s.Upsert(makePE("y", "I", copySelector("app=a")))
		check(s, "written again", np)
	})
	t.Run("deleted, and created again by what its endpoints say", func(t *testing.T) {
		s := newStage(t)
		s.Upsert(makeNP("p", "app=b", "I"), makePE("x", "I", listed("b"), in("10.0.1.11 TCP/8080")), makePE("y", "I"))
		s.Synced(apis.KindNetworkPolicy)
		s.running("app=a", "app=b")
		s.Delete(makeNP("p", "", ""))
		check(s, "deleted", nil)
		s.Upsert(makePE("x", "I", listed("a1"), copySelector("app=a")))
		check(s, "written for other pods", np)
		if got := s.selected("app=b"); len(got) > 0 {
			t.Errorf("pods of the policy that was deleted are selected by %v", got)
		}
		s.pass(500 * ms)
		s.want("a rule of the policy that was deleted", "app=a", friend, "create=D running=D")
	})
	t.Run("selects nothing here", func(t *testing.T) {
		s := newStage(t)
		s.Upsert(makePE("x", "I", copySelector("app=none")))
		s.Synced(apis.KindNetworkPolicy)
		s.pass(time.Hour)
		if got := s.Orphans(apis.KindNetworkPolicy); len(got) > 0 {
			t.Errorf("orphans are %v", got)
		}
	})
	t.Run("never known, of a kind that is not complete", func(t *testing.T) {
		s := newStage(t)
		s.Upsert(makePE("x", "I", listed("a1")))
		s.Synced(apis.KindApplicationNetworkPolicy)
		s.pass(time.Hour)
		check(s, "an hour later", np)
	})
	t.Run("endpoints before the policy", func(t *testing.T) {
		s := newStage(t)
		s.Synced(apis.KindNetworkPolicy)
		s.pass(time.Hour)
		s.Upsert(makePE("x", "I", copySelector("app=a")))
		check(s, "endpoints alone", np)
		s.pass(4 * time.Second)
		s.Upsert(makeNP("p", "app=a", "I"))
		s.pass(4 * time.Second)
		check(s, "with the policy", np)
	})
}
