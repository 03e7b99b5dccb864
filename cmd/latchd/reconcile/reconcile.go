package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// Reconciler owns the queue and the workers.
type Reconciler struct {
	world    *world.World
	enforcer *enforce.Enforcer
	store    state.Store
	log      *slog.Logger
	queue    workqueue.TypedRateLimitingInterface[identity.Identifier]

	compiled compiled
	observer Observer
	unread   unread
	unseen   unseen
	told     told

	mu   sync.Mutex
	pods map[podKey]publication // where each local pod was published last
	of   map[identity.Identifier]map[podKey]bool
	left map[podKey]map[identity.Identifier]bool // where else attachments of a pod may be bound
	errs map[identity.Identifier]error
	full map[identity.Identifier]bool // verify every interface at the next run

	replaced uint64 // enforce.Replaced, as followObjects saw it last

	progress progress
}

type podKey struct{ namespace, name string }

// publication is what a pod's record says.
type publication struct {
	id  identity.Identifier
	uid string
}

// New makes a reconciler; Run starts it.
func New(w *world.World, e *enforce.Enforcer, log *slog.Logger) *Reconciler {
	r := &Reconciler{
		world: w, enforcer: e, store: e.Store(), log: log,
		pods: map[podKey]publication{},
		of:   map[identity.Identifier]map[podKey]bool{},
		left: map[podKey]map[identity.Identifier]bool{},
		errs: map[identity.Identifier]error{},
		full: map[identity.Identifier]bool{},

		progress: newProgress(),
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[identity.Identifier](20*time.Millisecond, 10*time.Second)
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[identity.Identifier]{Queue: newLanes(r.hasChanged)})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[identity.Identifier]{Queue: ordered})
	r.queue = workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[identity.Identifier]{DelayingQueue: delaying})
	return r
}

// Enqueue asks for identifiers to be reconciled. It never blocks.
func (r *Reconciler) Enqueue(ids ...identity.Identifier) {
	r.noteChange(ids)
	r.enqueue(ids...)
}

func (r *Reconciler) enqueue(ids ...identity.Identifier) {
	for _, id := range ids {
		r.queue.Add(id)
	}
}

// EnqueueAfter asks for an identifier to be reconciled when a delay is over.
func (r *Reconciler) EnqueueAfter(id identity.Identifier, d time.Duration) { r.queue.AddAfter(id, d) }

// Run works until the context ends, then lets running work end. Enforcement stays as it is.
func (r *Reconciler) Run(ctx context.Context, workers int) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	for range min(r.unseen.count(), adopters) {
		wg.Go(func() {
			for r.unseen.count() > 0 && r.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	wg.Wait()
}

func (r *Reconciler) next(ctx context.Context) bool {
	id, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(id)
	if ctx.Err() != nil {
		return false // what waits in the queue is for the next process
	}
	r.begin(id)
	err := r.reconcile(ctx, id)
	r.end(id, err)
	r.note(id, err)
	r.followObjects()
	if err != nil && ctx.Err() != nil {
		return false
	}
	if err != nil {
		r.tellFailure(id, err)
		r.queue.AddRateLimited(id)
		return true
	}
	r.told.forget(id)
	r.queue.Forget(id)
	return true
}

// reconcile brings one identifier to its desired state.
func (r *Reconciler) reconcile(ctx context.Context, id identity.Identifier) (err error) {
	v, held, err := r.lock(ctx, id)
	if err != nil {
		return err
	}
	if !v.wanted {
		return r.retire(ctx, id, v.attached)
	}
	defer func() { err = errors.Join(err, unlock(held)) }()
	if err := r.unread.keeps(r, id); err != nil {
		return err
	}
	desired := v.desired
	req := enforce.Request{
		Identifier: id, Namespace: desired.Namespace, Labels: desired.Labels, Policies: desired.Policies, Pending: desired.Pending, Settling: desired.Settling,
		HoldRunning: desired.HoldRunning, Bind: slices.Concat(v.moves, v.adopts), Verify: r.takeFull(id),
	}
	if len(v.adopts) > 0 {
		req.Seed, req.Verify = r.unseen.flows.Flows, true
	}
	defer func() {
		if err != nil && req.Verify {
			r.setFull(id) // the next try has to look as closely
		}
	}()
	if req.Create, err = r.compiled.get(desired.CreateKey, desired.Create); err != nil {
		return err
	}
	if !desired.SameRunning {
		if req.Running, err = r.compiled.get(desired.RunningKey, desired.Running); err != nil {
			return err
		}
	}
	r.world.Applying(id, desired)
	result, err := r.enforcer.Apply(ctx, held, req)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	r.world.Applied(id, desired)
	r.adopted(id, v.adopts)
	r.report(id, req, result)
	return r.publish(desired)
}

// retire handles an identifier that no pod has any more. What is still attached keeps its policy
// until DEL; after that everything goes.
func (r *Reconciler) retire(ctx context.Context, id identity.Identifier, attached bool) error {
	held, err := r.enforcer.Lock(ctx, id)
	if err != nil {
		return err
	}
	if _, wanted := r.world.Desired(id); wanted {
		return held.Release() // a pod of it has come meanwhile, and is enqueued
	}
	if err := r.withdraw(id, nil); err != nil || attached {
		return errors.Join(err, r.verifyDefaults(ctx, held, id), held.Release())
	}
	if err := r.enforcer.Forget(ctx, held, id); err != nil {
		return errors.Join(err, held.Release())
	}
	if r.observer.Rules != nil {
		r.observer.Rules(id, 0)
	}
	return held.ReleaseAndRemove()
}

// verifyDefaults has the kernel asked about attachments that are bound to a default slot, when an audit
// wants it: nothing else ever applies them again.
func (r *Reconciler) verifyDefaults(ctx context.Context, held *lock.Held, id identity.Identifier) error {
	if !r.takeFull(id) {
		return nil
	}
	members, err := r.store.Members(id)
	errs := []error{err}
	for _, m := range members {
		if m.Default == "" || m.Phase != state.PhaseEnforced {
			continue
		}
		req := enforce.Request{Identifier: id, Default: m.Default, Bind: []state.Attachment{m}, Verify: true}
		result, err := r.enforcer.Apply(ctx, held, req)
		if err == nil {
			r.report(id, req, result)
		}
		if !errors.Is(err, attach.ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func amount(rules *policy.Rules) int {
	if rules == nil {
		return 0
	}
	return len(rules.Entries[policy.Ingress]) + len(rules.Entries[policy.Egress])
}

// report logs what Apply mended and what it found gone.
func (r *Reconciler) report(id identity.Identifier, req enforce.Request, result enforce.Result) {
	if result.Changed {
		r.waited(id, r.observer.InForce)
	}
	if r.observer.Rules != nil {
		r.observer.Rules(id, max(amount(req.Create), amount(req.Running)))
	}
	for _, repair := range result.Repaired {
		r.log.Warn("repaired", "identifier", id, "what", repair.What)
		r.diverged(repair.What)
		if r.observer.Repaired != nil {
			r.observer.Repaired(id, repair)
		}
	}
	for _, a := range result.Gone {
		r.log.Info("interface is gone", "identifier", id, "container", a.ContainerID, "pod", a.PodNamespace+"/"+a.PodName)
	}
}

// note remembers the last error of each identifier, for the node's status.
func (r *Reconciler) note(id identity.Identifier, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.errs, id)
	} else {
		r.errs[id] = err
	}
}

// Errors are the identifiers whose last run failed.
func (r *Reconciler) Errors() map[identity.Identifier]error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := make(map[identity.Identifier]error, len(r.errs))
	for id, err := range r.errs {
		errs[id] = err
	}
	return errs
}

func (r *Reconciler) setFull(id identity.Identifier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full[id] = true
}

func (r *Reconciler) takeFull(id identity.Identifier) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	full := r.full[id]
	delete(r.full, id)
	return full
}
