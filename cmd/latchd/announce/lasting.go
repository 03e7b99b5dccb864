package announce

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/observe/health"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

const (
	lastsFor    = 5 * time.Second  // before it is told
	tellAgain   = 30 * time.Minute // while it lasts: events are forgotten after an hour
	tellChanged = time.Minute      // with another message
	tellAtOnce  = 20               // in one look: the rest follows with the next ones
)

// topic is one thing that can be wrong with one object.
type topic struct {
	ref    corev1.ObjectReference
	reason string
}

// lasting are the topics that are open. Only Run's goroutine uses it.
type lasting struct{ open map[topic]*opened }

type opened struct {
	since, told time.Time // told is zero if it is not yet
	said        string
}

func newLasting() lasting { return lasting{map[topic]*opened{}} }

// look compares what is open with what was, and returns what to tell. how tells whether a pod is attached,
// and whether it is in force.
func (l lasting) look(now time.Time, current map[topic]string, how func(corev1.ObjectReference) (there, well bool)) []event {
	var out []event
	for t, o := range l.open {
		if _, still := current[t]; still {
			continue
		}
		there, well := how(t.ref)
		if there && !well && !o.told.IsZero() {
			continue // the kernel has not been asked since
		}
		delete(l.open, t)
		if well && !o.told.IsZero() {
			out = append(out, event{t.ref, corev1.EventTypeNormal, ReasonEnforced, "judged by the newest policy again"})
		}
	}
	for t, message := range current {
		o := l.open[t]
		if o == nil {
			o = &opened{since: now}
			l.open[t] = o
		}
		wait := tellAgain
		if o.said != message {
			wait = tellChanged
		}
		if now.Sub(o.since) < lastsFor || now.Sub(o.told) < wait || len(out) >= tellAtOnce {
			continue
		}
		o.told, o.said = now, message
		out = append(out, event{t.ref, corev1.EventTypeWarning, t.reason, message})
	}
	return out
}

// how returns a function that tells how a pod stands.
func (a *Announcer) how(found health.Finding) func(corev1.ObjectReference) (there, well bool) {
	states := map[corev1.ObjectReference]health.State{}
	for _, p := range found.Pods {
		ref := a.pod(p.Namespace, p.Name, p.UID)
		if s, ok := states[ref]; !ok || s == health.Enforced {
			states[ref] = p.State
		}
	}
	return func(ref corev1.ObjectReference) (there, well bool) {
		s, there := states[ref]
		return there, s == health.Enforced
	}
}

// current is everything that is not as it should be.
func (a *Announcer) current(found health.Finding, failing map[identity.Identifier]error) map[topic]string {
	open := map[topic]string{}
	for _, p := range found.Pods {
		why := ""
		switch p.State {
		case health.NotInForce:
			why = "the kernel does not do what is recorded: " + p.Why
		case health.NotAdopted:
			why = "the pod was there before Latch, and runs without policy: " + p.Why
		case health.DefaultAllow:
			why = "nothing is known about the pod: it is open"
		case health.DefaultDeny:
			why = "nothing is known about the pod: it is closed"
		}
		if why != "" {
			open[topic{a.pod(p.Namespace, p.Name, p.UID), ReasonNotEnforced}] = why
		}
	}
	for id, err := range failing {
		d, ok := a.from.Desired(id)
		if !ok {
			continue
		}
		for _, p := range d.Pods {
			open[topic{a.pod(p.Namespace, p.Name, p.UID), ReasonNotEnforced}] = "its newest rules are not in the kernel: " + oneLine(err)
		}
		if errors.Is(err, policy.ErrTooBig) {
			for _, ref := range d.Policies[:min(len(d.Policies), maxBlamed)] {
				open[topic{objectOf(ref, a.from.PolicyUID(ref)), ReasonNotApplied}] = "alone or together with others, too big for the pods that it selects: " + oneLine(err)
			}
		}
	}
	for _, t := range a.from.Troubles() {
		ref := objectOf(t.Policy, t.UID)
		if t.Waits != "" {
			open[topic{ref, ReasonPending}] = t.Waits
		}
		if len(t.Problems) > 0 {
			open[topic{ref, ReasonIncomplete}] = listed(t)
		}
	}
	return open
}

// maxBlamed bounds how many policies are told that they are too big together.
const maxBlamed = 10

// maxListed bounds how many problems one message names.
const maxListed = 5

func listed(t world.Trouble) string {
	own := apis.Ref{Kind: t.Policy.Kind, Namespace: t.Policy.Namespace, Name: t.Policy.Name}.String()
	var lines []string
	for _, p := range t.Problems[:min(len(t.Problems), maxListed)] {
		if p.Object == own {
			p.Object = ""
		}
		lines = append(lines, p.String())
	}
	if more := len(t.Problems) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}

// objectOf names a policy for an event.
func objectOf(ref policy.PolicyRef, uid string) corev1.ObjectReference {
	version := "networking.k8s.aws/v1alpha1"
	if ref.Kind == apis.KindNetworkPolicy {
		version = "networking.k8s.io/v1"
	}
	return corev1.ObjectReference{APIVersion: version, Kind: cmp.Or(ref.Kind, apis.KindNetworkPolicy), Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(uid)}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
