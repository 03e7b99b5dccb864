package announce

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/observe/health"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// lookPeriod is how often the node is looked at.
const lookPeriod = time.Second

// Options of an Announcer.
type Options struct {
	Client    rest.Interface // of the core group
	Node      string
	Events    bool
	Condition bool
	Log       *slog.Logger
}

// Sources are what there is to tell.
type Sources struct {
	Found     func() health.Finding                // what the kernel does, by attachment
	Look      func()                               // asks for a new Found soon
	Failing   func() map[identity.Identifier]error // identifiers whose last run failed
	Behind    func() map[identity.Identifier]time.Time
	Desired   func(identity.Identifier) (world.Desired, bool)
	Troubles  func() []world.Trouble
	PolicyUID func(policy.PolicyRef) string
	Members   func(identity.Identifier) ([]state.Attachment, error)
}

// Announcer tells Kubernetes about the node. Make one with New, and Run it once.
type Announcer struct {
	opts     Options
	from     Sources
	recorder record.EventRecorder // nil until Run, or without events
	lasting  lasting
	keeper   keeper

	mu      sync.Mutex
	pods    map[types.NamespacedName]*corev1.Pod
	waiting []event // of before Run
	denied  error   // the last answer to a write was this
}

// event is something to tell once.
type event struct {
	ref                   corev1.ObjectReference
	kind, reason, message string
}

// New makes an announcer. It does not talk to the API server yet.
func New(o Options, from Sources) *Announcer {
	return &Announcer{opts: o, from: from, lasting: newLasting(), keeper: newKeeper(), pods: map[types.NamespacedName]*corev1.Pod{}}
}

// Run tells what there is to tell until the context ends.
func (a *Announcer) Run(ctx context.Context) {
	if a.opts.Events {
		r := newRecorder(ctx, a.opts.Client, a.opts.Node, a.noteWrite)
		a.mu.Lock()
		a.recorder = r
		waiting := a.waiting
		a.waiting = nil
		a.mu.Unlock()
		for _, e := range waiting {
			a.tell(e)
		}
	}
	_ = wait.PollUntilContextCancel(ctx, lookPeriod, false, func(ctx context.Context) (done bool, _ error) {
		a.look(ctx)
		return false, nil
	})
}

// look tells what there is to tell now.
func (a *Announcer) look(ctx context.Context) {
	found := a.from.Found()
	if found.At.IsZero() || found.Err != nil {
		return
	}
	failing := a.from.Failing()
	if a.opts.Events {
		for _, e := range a.lasting.look(time.Now(), a.current(found, failing), a.how(found)) {
			a.tell(e)
		}
	}
	if a.opts.Condition {
		a.keep(ctx, found, failing)
	}
}

// maxWaiting bounds what is remembered before Run.
const maxWaiting = 100

func (a *Announcer) tell(e event) {
	a.mu.Lock()
	r := a.recorder
	if r == nil && a.opts.Events && len(a.waiting) < maxWaiting {
		a.waiting = append(a.waiting, e)
	}
	a.mu.Unlock()
	if r != nil {
		r.Event(&e.ref, e.kind, e.reason, cut(e.message))
	}
}

// Problem says why nothing can be told, empty if it can.
func (a *Announcer) Problem() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.denied == nil {
		return ""
	}
	return "events or conditions cannot be written: " + a.denied.Error()
}

// noteWrite takes down how a write went. Only a right that is missing lasts: that the API server is away is
// said by who follows it, and an object or a namespace that goes is no problem of the node.
func (a *Announcer) noteWrite(err error) {
	switch {
	case err == nil:
	case !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return
	}
	a.mu.Lock()
	was := a.denied
	a.denied = err
	a.mu.Unlock()
	if err != nil && was == nil {
		a.opts.Log.Warn("the cluster cannot be told of this node", "error", err)
	}
}

// Change takes over what is known of pods.
func (a *Announcer) Change(upserted, deleted []apis.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range upserted {
		if p, ok := o.(*corev1.Pod); ok {
			a.pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
		}
	}
	for _, o := range deleted {
		if p, ok := o.(*corev1.Pod); ok {
			delete(a.pods, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
		}
	}
}

// pod names a pod for an event. Without a uid it is the pod that has the name now.
func (a *Announcer) pod(namespace, name, uid string) corev1.ObjectReference {
	if uid == "" {
		a.mu.Lock()
		if p := a.pods[types.NamespacedName{Namespace: namespace, Name: name}]; p != nil {
			uid = string(p.UID)
		}
		a.mu.Unlock()
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: apis.KindPod, Namespace: namespace, Name: name, UID: types.UID(uid)}
}

// Attached says that a pod has been started.
func (a *Announcer) Attached() {
	if a.opts.Condition {
		a.from.Look()
	}
}

// Repaired announces what was mended, on the pods that it was about.
func (a *Announcer) Repaired(id identity.Identifier, r enforce.Repair) {
	members, _ := a.from.Members(id) // the readable ones
	for _, m := range members {
		for _, in := range m.Interfaces {
			if r.Interface == "" || r.Interface == in.Name {
				a.tell(event{a.pod(m.PodNamespace, m.PodName, m.PodUID), corev1.EventTypeWarning, ReasonRepaired, "not as policy says, and mended: " + r.What})
				break
			}
		}
	}
}

// Failed announces an ADD that failed.
func (a *Announcer) Failed(f state.Failure) {
	a.tell(event{a.pod(f.PodNamespace, f.PodName, f.PodUID), corev1.EventTypeWarning, ReasonSetupFailed, f.Message})
}
