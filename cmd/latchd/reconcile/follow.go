package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// Follow watches the records that the plugin writes until the context ends: an identifier that gets an
// attachment is running from then on, and one that loses its last may be given back. What the watch
// misses, the audit finds.
func (r *Reconciler) Follow(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("follow attachments: %w", err)
	}
	defer w.Close()
	dir, err := r.store.MakeAttachmentDir()
	if err != nil {
		return fmt.Errorf("follow attachments: %w", err)
	}
	if err := w.Add(dir); err != nil {
		return fmt.Errorf("follow attachments: %w", err)
	}
	ids := map[string]identity.Identifier{} // by file name
	attached := map[string]bool{}           // the observer knows of it
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			r.log.Warn("follow attachments", "error", err)
		case event := <-w.Events:
			if event.Name == dir && event.Has(fsnotify.Remove|fsnotify.Rename) {
				r.watchAgain(w)
				continue
			}
			name, ok := strings.CutSuffix(filepath.Base(event.Name), ".json")
			if !ok || event.Has(fsnotify.Chmod) || event.Has(fsnotify.Write) {
				continue
			}
			r.followOne(name, ids)
			r.noteAttached(name, event.Name, attached)
		}
	}
}

// watchAgain makes the folder anew and watches it: a watch is on what was there, not on a name.
func (r *Reconciler) watchAgain(w *fsnotify.Watcher) {
	dir, err := r.store.MakeAttachmentDir()
	if err == nil {
		err = w.Add(dir)
	}
	if err != nil {
		r.log.Error("running without watching records, the audit finds what changes", "error", err)
	}
}

// followOne enqueues the identifier that an attachment has now and the one that it had.
func (r *Reconciler) followOne(key string, ids map[string]identity.Identifier) {
	was := ids[key]
	a, err := r.store.ReadAttachmentKey(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(ids, key)
		r.enforcer.ReleaseLinks(key)
	case err != nil:
		r.log.Warn("follow attachments", "error", err)
		return
	default:
		ids[key] = a.Identifier
		if err := r.enforcer.HoldLinks(a); err != nil {
			r.log.Warn("follow attachments", "error", err) // the audit looks again
		}
		r.world.SetRunning(a.Identifier, true)
		if a.Identifier != was {
			r.Enqueue(a.Identifier)
		}
		// Bound by its name: the identifier that it is published under takes it over.
		if now, ok := r.published(a.PodNamespace, a.PodName); ok && now.id != a.Identifier {
			r.Enqueue(now.id)
		}
	}
	if was != "" && was != ids[key] {
		// A moment later: the plugin still holds the lock.
		r.EnqueueAfter(was, 50*time.Millisecond)
	}
}

// noteAttached tells the observer how long the write path took for a pod that was just started: the
// record of its intent says when it began, the time of the record of success when it ended.
func (r *Reconciler) noteAttached(key, path string, known map[string]bool) {
	a, err := r.store.ReadAttachmentKey(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(known, key)
		return
	case err != nil, a.Phase != state.PhaseEnforced, a.Adopted, known[key]:
		return
	}
	known[key] = true
	r.unseen.added(podKey{a.PodNamespace, a.PodName})
	if r.observer.Attached == nil {
		return
	}
	info, err := os.Stat(path)
	if err != nil || info.ModTime().Sub(a.CreatedAt) > time.Minute {
		return // it was there before this watch, and has been written again
	}
	r.observer.Attached(info.ModTime().Sub(a.CreatedAt))
}
