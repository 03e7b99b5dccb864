package announce

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/latch-cni/latch/cmd/latchd/observe/health"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// Condition is the type of the pods' condition. It can be a readiness gate.
const Condition = "latch-cni.dev/PolicyEnforced"

const (
	// openFor is how long something may be open before a condition that is True becomes False.
	openFor = time.Second
	// writeAgain is the pause after a condition could not be written.
	writeAgain = 5 * time.Second
)

// keeper remembers what was written. Only Run's goroutine uses it.
type keeper struct {
	pods  map[types.UID]*kept
	pause time.Time // until when nothing is written
}

type kept struct {
	wrote verdict   // as the API server has it; zero: nothing yet
	sent  verdict   // written last, and perhaps not seen yet
	at    time.Time // when that was
	open  time.Time // since when the pod would be False while it is True; zero: it would not
}

// verdict is what a condition says.
type verdict struct {
	status          corev1.ConditionStatus
	reason, message string
}

func newKeeper() keeper { return keeper{pods: map[types.UID]*kept{}} }

// keep writes the conditions that are not as they should be.
func (a *Announcer) keep(ctx context.Context, found health.Finding, failing map[identity.Identifier]error) {
	now, pods, behind := time.Now(), a.attached(found), a.from.Behind()
	for uid := range a.keeper.pods {
		if _, ok := pods[uid]; !ok {
			delete(a.keeper.pods, uid)
		}
	}
	desired := map[identity.Identifier]world.Desired{} // pods share it
	for uid, p := range pods {
		k := a.keeper.pods[uid]
		if k == nil {
			k = &kept{}
			a.keeper.pods[uid] = k
		}
		k.wrote = written(p.object)
		v := verdict{corev1.ConditionTrue, ConditionNotSubject, "the pod has the network of the node"}
		if !p.object.Spec.HostNetwork {
			id := identity.Identifier(p.states[0].Identifier)
			d, ok := desired[id]
			if !ok {
				d, _ = a.from.Desired(id)
				desired[id] = d
			}
			v = judge(p.states, d, failing[id], behind[id], now, k.wrote.status == corev1.ConditionTrue)
		}
		if !k.due(v, now) || v == k.sent && now.Sub(k.at) < writeAgain || now.Before(a.keeper.pause) {
			continue
		}
		k.sent, k.at = v, now
		err := a.write(ctx, p.object, v)
		a.noteWrite(err)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			a.keeper.pause = now.Add(writeAgain)
		}
	}
}

// due says whether to write a verdict now.
func (k *kept) due(v verdict, now time.Time) bool {
	if k.wrote.status != corev1.ConditionTrue || v.status == corev1.ConditionTrue {
		k.open = time.Time{}
		return k.wrote != v
	}
	if k.open.IsZero() {
		k.open = now
	}
	return now.Sub(k.open) >= openFor
}

// attachedPod is a pod and how its attachments are.
type attachedPod struct {
	object *corev1.Pod
	states []health.Pod
}

// attached finds the pods that have an attachment, and those of the node's network that wait for the
// condition. A pod of kubelet's manifest folder has none: what is written to its object nobody reads.
func (a *Announcer) attached(found health.Finding) map[types.UID]attachedPod {
	states := map[types.NamespacedName][]health.Pod{}
	for _, p := range found.Pods {
		if p.State != health.Gone && p.State != health.Starting {
			key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
			states[key] = append(states[key], p)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	pods := map[types.UID]attachedPod{}
	for name, o := range a.pods {
		if o.Annotations[corev1.MirrorPodAnnotationKey] != "" || o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
			continue
		}
		p := attachedPod{object: o}
		for _, s := range states[name] {
			if s.UID == "" || s.UID == string(o.UID) { // not an earlier pod of the name
				p.states = append(p.states, s)
			}
		}
		if len(p.states) > 0 || o.Spec.HostNetwork && len(o.Spec.ReadinessGates) > 0 {
			pods[o.UID] = p
		}
	}
	return pods
}

// judge says what the condition should be. A change that is on its way does not count for a pod that is
// under the newest policy already, for as long as it is not late.
func judge(states []health.Pod, d world.Desired, failing error, behind, now time.Time, isTrue bool) verdict {
	no := func(reason, format string, args ...any) verdict {
		return verdict{corev1.ConditionFalse, reason, cut(fmt.Sprintf(format, args...))}
	}
	for _, s := range states {
		switch s.State {
		case health.NotInForce:
			return no(ConditionNotInForce, "%s", s.Why)
		case health.NotAdopted:
			return no(ConditionNotAdopted, "%s", s.Why)
		case health.DefaultAllow, health.DefaultDeny:
			return no(ConditionUnknown, "bound to %s", s.State)
		}
	}
	switch late := now.Sub(behind) > openFor; {
	case failing != nil:
		return no(ConditionStale, "%s", oneLine(failing))
	case !behind.IsZero() && (late || !isTrue):
		return no(ConditionChanging, "a change is not in force yet")
	}
	for _, s := range states {
		if s.State == health.Stale {
			return no(ConditionStale, "the kernel holds older rules")
		}
	}
	switch {
	case len(d.Pending) > 0:
		return no(ConditionPending, "the rules of %s are not known", refs(d.Pending))
	case len(d.Settling) > 0:
		return no(ConditionSettling, "%s may not be complete", refs(d.Settling))
	}
	return verdict{corev1.ConditionTrue, ConditionEnforced, "the kernel holds the newest policy"}
}

func refs(all []policy.PolicyRef) string {
	text := ""
	for i, ref := range all {
		if i == maxListed {
			return fmt.Sprintf("%s and %d more", text, len(all)-i)
		}
		if i > 0 {
			text += ", "
		}
		text += ref.String()
	}
	return text
}

// written is what the API server has, by what was seen of it last.
func written(p *corev1.Pod) verdict {
	for _, c := range p.Status.Conditions {
		if c.Type == Condition {
			return verdict{c.Status, c.Reason, c.Message}
		}
	}
	return verdict{}
}

// write patches the condition of this very pod, not of a successor of its name.
func (a *Announcer) write(ctx context.Context, p *corev1.Pod, v verdict) error {
	c := corev1.PodCondition{Type: Condition, Status: v.status, Reason: v.reason, Message: v.message, LastTransitionTime: metav1.Now()}
	for _, old := range p.Status.Conditions {
		if old.Type == Condition && old.Status == v.status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []any{c}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.opts.Client.Patch(types.StrategicMergePatchType).Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("status").
		Body(patch).Do(ctx).Error()
}
