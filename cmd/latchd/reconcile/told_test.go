package reconcile

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/identity"
)

// An error is told when it is new, and again once in a while.
func TestErrorsAreToldOnce(t *testing.T) {
	var said told
	now := time.Now()
	a, b := identity.Of("t1", nil), identity.Of("t2", nil)
	for i, step := range []struct {
		id    identity.Identifier
		text  string
		after time.Duration
		want  bool
	}{
		{a, "too big", 0, true}, {a, "too big", time.Second, false}, {b, "too big", 0, true},
		{a, "another", 0, true}, {a, "another", tellAgain - time.Second, false}, {a, "another", time.Second, true}, {a, "another", time.Second, false},
	} {
		now = now.Add(step.after)
		if got := said.isNews(step.id, step.text, now); got != step.want {
			t.Errorf("step %d: news %v, want %v", i, got, step.want)
		}
	}
	said.forget(a)
	if !said.isNews(a, "another", now) {
		t.Error("what was well in between is no news")
	}
}

// The log names the pods and the policies that an error is about, not only the identifier.
func TestErrorsNamePods(t *testing.T) {
	g := newGround(t)
	var log bytes.Buffer
	w := world.New(world.Options{PodsComplete: true, NodeName: "n"})
	w.Synced()
	g.Reconciler = New(w, g.enforcer, slog.New(slog.NewTextHandler(&log, nil)))
	id := g.label("a", "u1")
	for range 3 {
		g.tellFailure(id, errors.New("too big"))
	}
	if said := log.String(); strings.Count(said, "too big") != 1 || !strings.Contains(said, "shop/p") {
		t.Errorf("the log says:\n%s", said)
	}
	if got := some([]string{"1", "2", "3", "4", "5", "6", "7"}); got != "1, 2, 3, 4, 5 and 2 more" {
		t.Errorf("got %q", got)
	}
}
