package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/latch-cni/latch/cmd/latchd/observe/health"
	"github.com/latch-cni/latch/cmd/latchd/observe/reference"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/policy"
)

func TestReference(t *testing.T) {
	var events, condition strings.Builder
	events.WriteString("| reason | on | type | meaning | what to do |\n|---|---|---|---|---|\n")
	for _, r := range EventReasons() {
		fmt.Fprintf(&events, "| `%s` | %s | %s | %s | %s |\n", r.Reason, r.On, r.Type, r.Meaning, r.Do)
	}
	condition.WriteString("| reason | status | meaning |\n|---|---|---|\n")
	for _, r := range ConditionReasons() {
		fmt.Fprintf(&condition, "| `%s` | %s | %s |\n", r.Reason, r.Status, r.Meaning)
	}
	reference.Check(t, "events.md", "events", events.String())
	reference.Check(t, "events.md", "condition", condition.String())
}

func podRef(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: name, UID: "u"}
}

// What lasts is told once, again when it has changed or been forgotten, and when it is over.
func TestWhatLastsIsTold(t *testing.T) {
	l, begin := newLasting(), time.Now()
	there, well := true, false
	how := func(corev1.ObjectReference) (bool, bool) { return there, well }
	broken := func(message string) map[topic]string {
		return map[topic]string{{podRef("db"), ReasonNotEnforced}: message}
	}
	for _, step := range []struct {
		at      time.Duration
		current map[topic]string
		well    bool
		want    string
	}{
		{0, broken("a"), false, ""},
		{4 * time.Second, broken("a"), false, ""},
		{5 * time.Second, broken("a"), false, "PolicyNotEnforced a"},
		{6 * time.Second, broken("b"), false, ""}, // it may go to and fro
		{66 * time.Second, broken("b"), false, "PolicyNotEnforced b"},
		{20 * time.Minute, broken("b"), false, ""},
		{32 * time.Minute, broken("b"), false, "PolicyNotEnforced b"},
		{33 * time.Minute, nil, false, ""}, // mended, and the kernel has not been asked since
		{34 * time.Minute, nil, true, "PolicyEnforced judged by the newest policy again"},
		{35 * time.Minute, nil, true, ""},
		{36 * time.Minute, broken("c"), false, ""}, // over before it was told
		{37 * time.Minute, nil, true, ""},
	} {
		well = step.well
		var got []string
		for _, e := range l.look(begin.Add(step.at), step.current, how) {
			got = append(got, e.reason+" "+e.message)
		}
		if strings.Join(got, "; ") != step.want {
			t.Errorf("after %v: told %q, want %q", step.at, got, step.want)
		}
	}
	there, well = false, false
	l.look(begin, broken("d"), how)
	l.look(begin.Add(time.Hour), broken("d"), how)
	if told := l.look(begin.Add(2*time.Hour), nil, how); len(told) > 0 || len(l.open) > 0 {
		t.Errorf("a pod that is gone is told of: %v, %d open", told, len(l.open))
	}
}

// However much is wrong, the API server is told of it bit by bit.
func TestTellingIsBounded(t *testing.T) {
	l, now, current := newLasting(), time.Now(), map[topic]string{}
	for i := range 100 {
		current[topic{podRef(fmt.Sprint(i)), ReasonNotEnforced}] = "x"
	}
	how := func(corev1.ObjectReference) (bool, bool) { return true, false }
	l.look(now, current, how)
	told := map[corev1.ObjectReference]bool{}
	for look := range 5 {
		events := l.look(now.Add(time.Minute+time.Duration(look)*time.Second), current, how)
		if len(events) != tellAtOnce {
			t.Errorf("look %d tells %d, want %d", look, len(events), tellAtOnce)
		}
		for _, e := range events {
			told[e.ref] = true
		}
	}
	if len(told) != 100 {
		t.Errorf("%d of 100 were told", len(told))
	}
}

// Every node has the same name for the same event about a policy, and no other.
func TestNamesOfSharedEvents(t *testing.T) {
	event := func(change func(*corev1.Event)) string {
		e := &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "NetworkPolicy", Namespace: "shop", Name: "db", UID: "u"},
			Reason: ReasonPending, Message: "m", Source: corev1.EventSource{Host: fmt.Sprint(time.Now().UnixNano())}}
		change(e)
		return sharedName(e)
	}
	same := event(func(*corev1.Event) {})
	if again := event(func(*corev1.Event) {}); again != same {
		t.Errorf("%s and %s for one event", same, again)
	}
	seen := map[string]bool{same: true}
	for _, change := range []func(*corev1.Event){
		func(e *corev1.Event) { e.Reason = ReasonIncomplete }, func(e *corev1.Event) { e.Message = "n" },
		func(e *corev1.Event) { e.InvolvedObject.UID = "v" }, func(e *corev1.Event) { e.InvolvedObject.Kind = "ApplicationNetworkPolicy" },
		func(e *corev1.Event) { e.InvolvedObject.Namespace, e.InvolvedObject.Name = "sho", "pdb" },
	} {
		if name := event(change); seen[name] {
			t.Errorf("two events are called %s", name)
		} else {
			seen[name] = true
		}
	}
}

func TestConditionOfAPod(t *testing.T) {
	now, ref := time.Now(), []policy.PolicyRef{{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}}
	fine := []health.Pod{{State: health.Enforced}}
	for _, c := range []struct {
		name    string
		states  []health.Pod
		desired world.Desired
		failing error
		behind  time.Time
		isTrue  bool
		want    string
	}{
		{"in force", fine, world.Desired{}, nil, time.Time{}, false, ConditionEnforced},
		{"one of two attachments is not", append(fine, health.Pod{State: health.NotInForce, Why: "x"}), world.Desired{}, nil, time.Time{}, true, ConditionNotInForce},
		{"bound to a default", []health.Pod{{State: health.DefaultAllow}}, world.Desired{}, nil, time.Time{}, true, ConditionUnknown},
		{"not adopted", []health.Pod{{State: health.NotAdopted}}, world.Desired{}, nil, time.Time{}, true, ConditionNotAdopted},
		{"failing", fine, world.Desired{}, errors.New("x"), time.Time{}, true, ConditionStale},
		{"older rules", []health.Pod{{State: health.Stale}}, world.Desired{}, nil, time.Time{}, true, ConditionStale},
		{"a change on its way, of a pod that was never in force", fine, world.Desired{}, nil, now, false, ConditionChanging},
		{"a change on its way", fine, world.Desired{}, nil, now, true, ConditionEnforced},
		{"a change that is late", fine, world.Desired{}, nil, now.Add(-2 * time.Second), true, ConditionChanging},
		{"settling", fine, world.Desired{Settling: ref}, nil, time.Time{}, true, ConditionSettling},
		{"pending", fine, world.Desired{Pending: ref}, nil, time.Time{}, true, ConditionPending},
	} {
		v := judge(c.states, c.desired, c.failing, c.behind, now, c.isTrue)
		isTrue := v.status == corev1.ConditionTrue
		if v.reason != c.want || isTrue != (c.want == ConditionEnforced) {
			t.Errorf("%s: %+v, want %s", c.name, v, c.want)
		}
	}
}

// A condition that is True stays so for a second, whatever; any other is written at once.
func TestConditionDoesNotGoToAndFro(t *testing.T) {
	yes, no := verdict{corev1.ConditionTrue, ConditionEnforced, ""}, verdict{corev1.ConditionFalse, ConditionSettling, ""}
	now := time.Now()
	k := &kept{wrote: yes}
	for _, step := range []struct {
		at   time.Duration
		v    verdict
		want bool
	}{
		{0, yes, false}, {1, no, false}, {2, yes, false}, {3, no, false}, {4, no, false},
		{3 + openFor, no, true},
	} {
		if got := k.due(step.v, now.Add(step.at)); got != step.want {
			t.Errorf("after %v, %s: due %v", step.at, step.v.reason, got)
		}
	}
	if k := (&kept{}); !k.due(no, now) || !k.due(yes, now) {
		t.Error("the first condition is not written at once")
	}
	if k := (&kept{wrote: no}); !k.due(yes, now) || k.due(no, now) {
		t.Error("a condition that is False is not written when it changes, or when it does not")
	}
}

// Only what lasts is a problem of the node.
func TestWritesThatFail(t *testing.T) {
	a := New(Options{Log: slog.New(slog.DiscardHandler)}, Sources{})
	pods := schema.GroupResource{Resource: "pods"}
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "x", errors.New("it is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"the namespace goes", ending, false},
		{"the pod has gone", apierrors.NewNotFound(pods, "x"), false},
		{"another node was first", apierrors.NewAlreadyExists(pods, "x"), false},
		{"the server is away", context.DeadlineExceeded, false},
		{"no right to", apierrors.NewForbidden(pods, "x", errors.New("no")), true},
		{"still away", context.DeadlineExceeded, true},
		{"granted", nil, false},
	} {
		if a.noteWrite(c.err); (a.Problem() != "") != c.want {
			t.Errorf("%s: problem %q", c.name, a.Problem())
		}
	}
}
