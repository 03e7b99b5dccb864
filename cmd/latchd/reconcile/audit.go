package reconcile

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/latch-cni/latch/shared/identity"
)

// goneGrace is how long an attachment whose interface is gone waits for its DEL before the audit
// removes it: an ADD that is just being made has its interface already.
const goneGrace = 5 * time.Second

// Audit asks the kernel about everything once in a period until the context ends: attachments whose
// interface is gone are removed, every identifier is reconciled with all its interfaces verified.
func (r *Reconciler) Audit(ctx context.Context, period time.Duration) {
	_ = wait.PollUntilContextCancel(ctx, period, false, func(ctx context.Context) (done bool, _ error) {
		began := time.Now()
		err := r.AuditOnce(ctx)
		if ctx.Err() != nil {
			return true, nil
		}
		if err != nil {
			r.log.Error("audit", "error", err)
		}
		r.auditEnded(began, err)
		return false, nil
	})
}

// AuditOnce is one round of Audit. The identifiers it asks for are reconciled by the workers. A record
// that cannot be read does not stop it.
func (r *Reconciler) AuditOnce(ctx context.Context) error {
	atts, err := r.store.ListAttachments()
	errs := []error{err}
	ids := map[identity.Identifier]bool{}
	for _, a := range atts {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r.enforcer.Gone(a) && time.Since(a.CreatedAt).Abs() > goneGrace {
			r.log.Info("interface is gone and no DEL came, removing", "container", a.ContainerID, "pod", a.PodNamespace+"/"+a.PodName)
			errs = append(errs, r.enforcer.Remove(ctx, a.ContainerID, a.IfName))
			r.diverged("attachment without interface")
		}
		if ended, err := r.enforcer.EndAdopted(ctx, a, atts); err != nil || ended {
			errs = append(errs, err)
			r.log.Info("the runtime has added an adopted pod, its attachment takes over", "pod", a.PodNamespace+"/"+a.PodName)
		}
		ids[a.Identifier] = true
	}
	for _, id := range r.findLeft(atts) {
		ids[id] = true
	}
	swept, err := r.enforcer.Sweep(ctx)
	r.followObjects()
	errs = append(errs, err)
	for _, what := range swept {
		r.log.Warn("swept", "what", what)
		r.diverged(what)
	}
	errs = append(errs, r.FindUnseen(), r.known(ids))
	r.verifyAll(ids)
	return errors.Join(errs...)
}

// known adds every identifier that the world asks for or that has a record.
func (r *Reconciler) known(ids map[identity.Identifier]bool) error {
	recs, err := r.store.ListIdentifiers()
	for _, rec := range recs {
		ids[rec.Identifier] = true
	}
	for _, id := range r.world.Identifiers() {
		ids[id] = true
	}
	return err
}

// followObjects has everything verified when somebody else's kernel objects took the place of those that
// were open: interfaces run programs that read maps which nobody writes any more.
func (r *Reconciler) followObjects() {
	now := r.enforcer.Replaced()
	r.mu.Lock()
	same := now == r.replaced
	r.replaced = now
	r.mu.Unlock()
	if same {
		return
	}
	ids := map[identity.Identifier]bool{}
	if err := r.known(ids); err != nil {
		r.log.Error("kernel objects were replaced: some records cannot be read", "error", err)
	}
	r.log.Warn("kernel objects were replaced, verifying everything", "identifiers", len(ids))
	r.verifyAll(ids)
}

// verifyAll asks for identifiers to be reconciled with all their interfaces verified.
func (r *Reconciler) verifyAll(ids map[identity.Identifier]bool) {
	r.mu.Lock()
	for id := range ids {
		r.full[id] = true
	}
	r.mu.Unlock()
	for id := range ids {
		r.enqueue(id)
	}
}
