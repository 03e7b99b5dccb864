package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/state"
)

var (
	errNoRecord = errors.New("no record of the pod")
	// errRecordChanged says that what was decided before the lock was taken is out of date.
	errRecordChanged = errors.New("the pod's record changed")
)

// binding is one attachment on its way under its pod's policy.
type binding struct {
	enforcer   *enforce.Enforcer
	conf       *Config
	log        *slog.Logger
	pod        pod
	attachment state.Attachment
	applied    bool // something may have been written
}

// enforce waits until the pod's record is published and its identifier prepared, at most policyWait,
// and applies it. When the time is up, the mode decides. What it returns nil for is in the kernel.
func (b *binding) enforce(ctx context.Context) error {
	start := time.Now()
	late := false // the time is up
	for {
		record, err := b.record()
		if err == nil {
			err = b.applyRecord(ctx, record, late)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errRecordChanged):
			continue
		case !errors.Is(err, errNoRecord) && !errors.Is(err, enforce.ErrNotPrepared):
			return err
		case !late:
			late = !b.pause(start)
			continue
		case errors.Is(err, enforce.ErrNotPrepared):
			return b.tryLater("latchd knows its policy, but it is not in the kernel",
				fmt.Sprintf("latchd is running (is %s its bpffs? latchctl status shows what it could not do)", b.conf.Bpffs))
		}
		if err := b.applyUnknown(ctx); err != nil || !b.published() {
			return err
		}
	}
}

// pause sleeps a moment, if there is one left of the time that policy is waited for.
func (b *binding) pause(start time.Time) bool {
	waited := time.Since(start)
	left := b.conf.PolicyWait - waited
	if left <= 0 {
		return false
	}
	time.Sleep(min(left, lock.Pause(waited)))
	return true
}

// record reads the pod's record. The record of another pod of the same name is none.
func (b *binding) record() (state.PodRecord, error) {
	record, err := b.enforcer.Store().ReadPod(b.pod.Namespace, b.pod.Name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !b.isOurs(record) {
		return state.PodRecord{}, errNoRecord
	}
	return record, err
}

// isOurs compares uids as far as both sides know them: a directory of manifests has none.
func (b *binding) isOurs(record state.PodRecord) bool {
	return b.pod.UID == "" || record.UID == "" || b.pod.UID == record.UID
}

// applyRecord binds the attachment to the identifier of the record. The record is read again under the
// lock: the pod's labels, and with them its identifier, may have changed while the lock was waited for.
// When the time is up, the lock covers the pod's name too, under which the attachment is while nothing
// is known, and in strict mode an identifier that is not prepared is answered with default deny.
func (b *binding) applyRecord(ctx context.Context, record state.PodRecord, late bool) (err error) {
	ids := []identity.Identifier{record.Identifier}
	if late {
		ids = append(ids, b.nameIdentifier())
	}
	held, err := b.lock(ctx, ids...)
	if err != nil {
		return err
	}
	defer func() {
		if len(held.IDs()) > 1 { // nobody else would remove the file of a name's lock
			err = errors.Join(err, held.ReleaseAndRemove())
			return
		}
		err = errors.Join(err, held.Release())
	}()
	now, err := b.record()
	if err != nil {
		return err
	}
	if now.Identifier != record.Identifier {
		return errRecordChanged
	}
	b.applied = true
	_, err = b.enforcer.Apply(ctx, held, enforce.Request{
		Identifier: record.Identifier,
		Namespace:  record.Namespace,
		Labels:     record.Labels,
		Bind:       []state.Attachment{b.attachment},
	})
	if late && errors.Is(err, enforce.ErrNotPrepared) && b.conf.EnforcingMode == ModeStrict {
		b.log.Warn("identifier is not prepared, default deny until it is", "identifier", record.Identifier)
		_, err = b.enforcer.Apply(ctx, held, b.defaultRequest(state.DefaultDeny))
		return err
	}
	if err == nil && b.conf.stricter { // what has been bound is taken back
		return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf(`enforcingMode is "strict" in latch's entry, but "standard" for latchd `+
			`(--enforcing-mode), which wrote the rules of pod %s: set both alike`, b.pod), "")
	}
	return err
}

// lock takes the locks of identifiers, and of the one under which an earlier ADD has left the attachment: it is
// moved from there.
func (b *binding) lock(ctx context.Context, ids ...identity.Identifier) (*lock.Held, error) {
	for {
		held, err := b.enforcer.Lock(ctx, slices.Concat(ids, b.leftUnder())...)
		if err != nil || !slices.ContainsFunc(b.leftUnder(), func(id identity.Identifier) bool { return !held.Covers(id) }) {
			return held, err
		}
		if err := held.ReleaseAndRemove(); err != nil { // latchd has moved it meanwhile
			return nil, err
		}
	}
}

// leftUnder is the identifier of the attachment's record, if there is one that can be read: Apply says so otherwise.
func (b *binding) leftUnder() []identity.Identifier {
	a, err := b.enforcer.Store().ReadAttachment(b.attachment.ContainerID, b.attachment.IfName)
	if err != nil {
		return nil
	}
	return []identity.Identifier{a.Identifier}
}

// applyUnknown decides about a pod of which nothing is known when the time is up. Never is such a pod
// let in open unless unknownPods says so.
func (b *binding) applyUnknown(ctx context.Context) (err error) {
	var verdict string
	switch {
	case b.conf.EnforcingMode == ModeStrict:
		verdict = state.DefaultDeny
	case b.conf.UnknownPods == UnknownDefault:
		verdict = state.DefaultAllow
	default:
		return b.tryLater("nothing is known about it", "latchd is running, and has no Pod object of it for this node")
	}
	held, err := b.lock(ctx, b.nameIdentifier())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.ReleaseAndRemove()) }()
	b.applied = true
	b.log.Warn("no record of the pod, default applies until there is one", "default", verdict, "waited", b.conf.PolicyWait)
	_, err = b.enforcer.Apply(ctx, held, b.defaultRequest(verdict))
	return err
}

func (b *binding) defaultRequest(verdict string) enforce.Request {
	return enforce.Request{
		Identifier: b.nameIdentifier(),
		Namespace:  b.pod.Namespace,
		Default:    verdict,
		Bind:       []state.Attachment{b.attachment},
	}
}

// nameIdentifier is what the pod goes by while its labels are not known.
func (b *binding) nameIdentifier() identity.Identifier {
	return identity.OfName(b.pod.Namespace, b.pod.Name)
}

// published tells whether the record came after all. latchd publishes a record before it looks for
// attachments of the pod, and ADD looks for the record again after it has written the attachment, so
// one of the two sees the other and the pod does not stay with the default.
func (b *binding) published() bool {
	_, err := b.record()
	return err == nil
}

func (b *binding) tryLater(why, whenReady string) error {
	hint := whenReady
	if err := watcher(b.conf.StateDir); err != nil {
		hint = err.Error()
	}
	return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s after %s: %s", why, b.conf.PolicyWait, hint), "")
}

// takeBack removes what a failed ADD has applied: the pod has not started.
func (b *binding) takeBack(ctx context.Context, cause error) error {
	if !b.applied {
		return cause
	}
	if err := b.enforcer.Remove(ctx, b.attachment.ContainerID, b.attachment.IfName); err != nil {
		return errors.Join(cause, fmt.Errorf("take back: %w", err))
	}
	return cause
}
