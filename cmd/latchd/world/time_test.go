package world

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/shared/identity"
)

const (
	friend   = "I:10.0.1.11 TCP/8080" // allowed by the policies below
	stranger = "I:203.0.113.9 TCP/8080"
	ms       = time.Millisecond
)

// TestSplitPolicyOnRunningPod creates the three objects of a policy 100 ms apart, in every order. The
// object that lists the pod has no rules. A pod being created has at once what is known; the running pod
// never loses its friend, and is isolated 500 ms after the last object.
func TestSplitPolicyOnRunningPod(t *testing.T) {
	chunks := []apis.Object{
		makePE("x", "I", listed("a1"), copySelector("app=a")),
		makePE("y", "I", in("10.0.1.11 TCP/8080", "10.9.0.1"), copySelector("app=a")),
		makePE("z", "I", in("10.9.0.2"), copySelector("app=a")),
	}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, object := range []bool{false, true} {
			t.Run(fmt.Sprint(order, object), func(t *testing.T) {
				s := newStage(t)
				s.Synced()
				s.running("app=a")
				if object {
					s.Upsert(makeNP("p", "app=a", "I"))
				}
				known := false
				for _, i := range order {
					affected := s.Upsert(chunks[i])
					known = known || i == 1
					if !slices.Contains(affected, idOf("app=a")) {
						t.Errorf("chunk %d does not affect the pod", i)
					}
					verdict := map[bool]string{false: "create=D", true: "create=A"}[known]
					s.want("right after a chunk", "app=a", friend, verdict+" running=A")
					s.want("right after a chunk", "app=a", stranger, "create=D running=A")
					s.pass(100 * ms)
				}
				if at := s.desired("app=a").RunningAt; !at.Equal(s.clock.now.Add(400 * ms)) {
					t.Errorf("in force at %v, want 400 ms from %v", at, s.clock.now)
				}
				if ids := s.pass(399 * ms); len(ids) > 0 {
					t.Errorf("due too early: %v", ids)
				}
				s.want("before the end of the quiet time", "app=a", stranger, "create=D running=A")
				if got := s.desired("app=a").Settling; len(got) != 1 || got[0].Name != "p" {
					t.Errorf("settling is %v, want p", got)
				}
				if ids := s.pass(1 * ms); !slices.Equal(ids, []identity.Identifier{idOf("app=a")}) {
					t.Errorf("due is %v, want the pod's identifier", ids)
				}
				if got := s.desired("app=a").Settling; len(got) > 0 {
					t.Errorf("settling is %v after the quiet time", got)
				}
				s.want("settled", "app=a", friend, "create=A running=A")
				s.want("settled", "app=a", stranger, "create=D running=D")
				if d := s.desired("app=a"); !d.SameRunning || !d.RunningAt.IsZero() {
					t.Errorf("still waiting: %+v", d)
				}
				s.want("of another identifier", "app=b", stranger, "create=A running=A")
			})
		}
	}
}

// TestQuietEnds isolates a running pod after 5 s, however often the policy changes.
func TestQuietEnds(t *testing.T) {
	s := newStage(t)
	s.Synced()
	s.running("app=a")
	s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I"))
	for i := range 49 {
		s.pass(100 * ms)
		s.Upsert(makePE("x", "I", in(fmt.Sprintf("10.9.0.%d", i+1))))
		s.want("noisy", "app=a", stranger, "create=D running=A")
	}
	s.pass(100 * ms)
	s.want("after 5 s", "app=a", stranger, "create=D running=D")
}

// TestNewPodsWhilePolicyIsSplit has everything that is known at ADD in force when the pod runs.
func TestNewPodsWhilePolicyIsSplit(t *testing.T) {
	s := newStage(t)
	s.Synced()
	s.Upsert(makePE("x", "I", copySelector("app=a")), makePE("y", "I", in("10.0.1.11 TCP/8080")))
	s.want("not running", "app=a", stranger, "create=D running=D")
	s.running("app=a")
	s.want("ADD returned", "app=a", friend, "create=A running=A")
	s.want("ADD returned", "app=a", stranger, "create=D running=D")
	s.Upsert(makePE("z", "I", in("10.9.0.2")))
	s.want("last chunk", "app=a", "I:10.9.0.2 TCP/1", "create=A running=A")
}

// TestMoreOnRunningPod applies at once whatever cannot be a policy that is still arriving.
func TestMoreOnRunningPod(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*stage)
	}{
		{"relabelled into a settled policy", func(s *stage) {
			s.Upsert(makePod("b", "app=a"))
			s.SetRunning(idOf("app=b"), false)
		}},
		{"second policy on an isolated pod", func(s *stage) {
			s.Upsert(makePE("q-1", "I", ofPolicy(apis.KindNetworkPolicy, "q"), copySelector("app=a"), in("10.9.0.3")))
			s.want("added", "app=a", "I:10.9.0.3 TCP/1", "create=A running=A")
		}},
		{"addition to the policy", func(s *stage) {
			s.Upsert(makePE("x", "I", in("10.0.1.11 TCP/8080", "10.9.0.4")))
			s.want("added", "app=a", "I:10.9.0.4 TCP/1", "create=A running=A")
		}},
		{"edit of a policy with one object", func(s *stage) {
			s.Upsert(makePE("x", "I", in("10.0.1.11 TCP/8080")), makePE("x", "I", in("10.9.0.1")))
			s.want("removed", "app=a", friend, "create=D running=D")
			s.Upsert(makePE("x", "I", in("10.0.1.11 TCP/8080")))
		}},
		{"selector edit", func(s *stage) {
			s.Upsert(makeNP("p", "app=other", "I"))
			s.want("edited away", "app=a", stranger, "create=A running=A")
			s.pass(time.Second)
			s.Upsert(makeNP("p", "app=a", "I"))
			s.pass(500 * ms)
		}},
		{"deleted and created again", func(s *stage) {
			s.Delete(makeNP("p", "", ""), makePE("x", ""))
			s.want("deleted", "app=a", stranger, "create=A running=A")
			s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I", in("10.0.1.11 TCP/8080")))
			s.pass(500 * ms)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I", in("10.0.1.11 TCP/8080")))
			s.Synced()
			s.running("app=a", "app=b")
			s.pass(time.Minute)
			tt.do(s)
			s.want("at last", "app=a", friend, "create=A running=A")
			s.want("at last", "app=a", stranger, "create=D running=D")
		})
	}
}

// TestSecondDirection waits for a direction that a policy in force begins to isolate.
func TestSecondDirection(t *testing.T) {
	s := newStage(t)
	s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I"))
	s.Synced()
	s.running("app=a")
	s.Upsert(makePE("x", "IE"))
	s.want("edited", "app=a", "E:10.9.0.1 TCP/1", "create=D running=A")
	s.want("edited", "app=a", stranger, "create=D running=D")
	s.pass(100 * ms)
	s.Upsert(makePE("y", "IE", out("10.9.0.1")))
	s.pass(500 * ms)
	s.want("settled", "app=a", "E:10.9.0.1 TCP/1", "create=A running=A")
	s.want("settled", "app=a", "E:10.9.0.2 TCP/1", "create=D running=D")
}

// TestRuleMoves moves a rule between objects of a policy: nobody loses it, in either order, and a rule
// that is really gone is so after the quiet time.
func TestRuleMoves(t *testing.T) {
	with := in("10.0.1.11 TCP/8080", "10.9.0.1")
	without := in("10.9.0.1")
	start := func(t *testing.T) *stage {
		s := newStage(t)
		s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I"), makePE("y", "I", with), makePE("z", "I", without))
		s.Synced()
		s.running("app=a")
		s.pass(time.Minute)
		return s
	}
	keep := func(s *stage, what string) {
		s.t.Helper()
		s.want(what, "app=a", friend, "create=A running=A")
		s.want(what, "app=a", stranger, "create=D running=D")
	}
	t.Run("addition first", func(t *testing.T) {
		s := start(t)
		s.Upsert(makePE("z", "I", with))
		keep(s, "added")
		s.pass(100 * ms)
		s.Upsert(makePE("y", "I", without))
		keep(s, "removed")
		s.pass(time.Second)
		keep(s, "settled")
	})
	t.Run("removal first", func(t *testing.T) {
		s := start(t)
		s.Upsert(makePE("y", "I", without))
		keep(s, "removed")
		s.pass(100 * ms)
		s.Upsert(makePE("z", "I", with))
		keep(s, "added")
		s.pass(time.Second)
		keep(s, "settled")
	})
	t.Run("object goes, another comes", func(t *testing.T) {
		s := start(t)
		s.Delete(makePE("y", ""))
		keep(s, "deleted")
		s.pass(400 * ms)
		s.Upsert(makePE("w", "I", with))
		s.pass(time.Second)
		keep(s, "settled")
	})
	t.Run("removal for good", func(t *testing.T) {
		s := start(t)
		s.Upsert(makePE("y", "I", without))
		if ids := s.pass(499 * ms); len(ids) > 0 {
			t.Errorf("due too early: %v", ids)
		}
		keep(s, "in the quiet time")
		if ids := s.pass(1 * ms); !slices.Contains(ids, idOf("app=a")) {
			t.Errorf("due is %v, want the identifier", ids)
		}
		s.want("settled", "app=a", friend, "create=D running=D")
	})
	t.Run("removal while others keep changing", func(t *testing.T) {
		s := start(t)
		s.Upsert(makePE("y", "I", without))
		for i := range 49 {
			s.pass(100 * ms)
			s.Upsert(makePE("z", "I", in(fmt.Sprintf("10.9.1.%d", i))))
			s.want("noisy", "app=a", friend, "create=A running=A")
		}
		s.pass(100 * ms)
		s.want("5 s later", "app=a", friend, "create=D running=D")
	})
	t.Run("listing alone is no event", func(t *testing.T) {
		s := start(t)
		s.Upsert(makePE("y", "I", without))
		s.pass(400 * ms)
		s.Upsert(makePE("z", "I", without, listed("a1")))
		s.pass(100 * ms)
		s.want("settled", "app=a", friend, "create=D running=D")
	})
	t.Run("one protocol of a block", func(t *testing.T) {
		s := newStage(t)
		s.Upsert(makeNP("p", "app=a", "I"), makePE("y", "I", in("10.0.1.11 TCP/8080")), makePE("z", "I", in("10.0.1.11 TCP/9090")))
		s.Synced()
		s.Delete(makePE("z", ""))
		s.pass(500 * ms)
		keep(s, "z deleted")
		s.want("z deleted", "app=a", "I:10.0.1.11 TCP/9090", "create=D running=D")
	})
}

// TestVanishedEndpoints keeps the last rules while a policy has lost all its objects, and drops what does
// not come back.
func TestVanishedEndpoints(t *testing.T) {
	s := newStage(t)
	s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I", in("10.0.1.11 TCP/8080")), makePE("y", "I", in("10.9.0.1")))
	s.Synced(apis.KindNetworkPolicy)
	s.running("app=a")
	s.Delete(makePE("x", ""))
	s.Delete(makePE("y", ""))
	s.pass(time.Hour)
	s.want("vanished", "app=a", friend, "create=A running=A")
	s.want("vanished", "app=a", stranger, "create=D running=D")
	if d := s.desired("app=a"); len(d.Pending) != 1 || len(d.Problems) != 1 || d.HoldRunning {
		t.Errorf("not reported: %+v", d)
	}
	s.Upsert(makePE("y", "I", in("10.9.0.1")))
	s.pass(400 * ms)
	s.want("half is back", "app=a", friend, "create=A running=A")
	s.pass(100 * ms)
	s.want("the rest stays away", "app=a", friend, "create=D running=D")
	s.want("the rest stays away", "app=a", "I:10.9.0.1 TCP/1", "create=A running=A")
	s.Delete(makePE("y", "")) // the only one
	s.want("vanished again", "app=a", "I:10.9.0.1 TCP/1", "create=A running=A")
	s.want("vanished again", "app=a", stranger, "create=D running=D")
	s.Delete(makeNP("p", "", ""))
	s.want("policy deleted", "app=a", stranger, "create=A running=A")
}

// TestCollectedEndpoints deletes a policy whose objects go one by one: nothing of it is lost before all is.
func TestCollectedEndpoints(t *testing.T) {
	s := newStage(t)
	s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I", in("10.0.1.11 TCP/8080")), makePE("y", "I"), makePE("z", "I"))
	s.Synced(apis.KindNetworkPolicy)
	s.running("app=a")
	s.Delete(makeNP("p", "", ""))
	for _, name := range []string{"x", "y"} {
		s.pass(time.Second)
		s.Delete(makePE(name, ""))
		s.want("without "+name, "app=a", friend, "create=A running=A")
		s.want("without "+name, "app=a", stranger, "create=D running=D")
	}
	s.pass(time.Second)
	s.Delete(makePE("z", ""))
	s.want("without any", "app=a", stranger, "create=A running=A")
}

// TestRun reports what is due at its time, without a poll.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Options{})
		w.Upsert(makePod("a1", "app=a"))
		w.Synced()
		w.SetRunning(idOf("app=a"), true)
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan []identity.Identifier, 10)
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx, func(ids ...identity.Identifier) { told <- ids })
		}()
		synctest.Wait()
		start := time.Now()
		w.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I"))
		if ids := <-told; !slices.Equal(ids, []identity.Identifier{idOf("app=a")}) || time.Since(start) != 500*ms {
			t.Errorf("told %v after %v", ids, time.Since(start))
		}
		cancel()
		<-done
	})
}
