package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/latch-cni/latch/shared/identity"
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			r.log.Warn("follow attachments", "error", err)
		case event := <-w.Events:
			name, ok := strings.CutSuffix(filepath.Base(event.Name), ".json")
			if !ok || event.Has(fsnotify.Chmod) || event.Has(fsnotify.Write) {
				continue
			}
			r.followOne(name, ids)
		}
	}
}

// followOne enqueues the identifier that an attachment has now and the one that it had.
func (r *Reconciler) followOne(key string, ids map[string]identity.Identifier) {
	was := ids[key]
	a, err := r.store.ReadAttachmentKey(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		delete(ids, key)
	case err != nil:
		r.log.Warn("follow attachments", "error", err)
		return
	default:
		ids[key] = a.Identifier
		r.world.SetRunning(a.Identifier, true)
		if a.Identifier != was {
			r.Enqueue(a.Identifier)
		}
	}
	if was != "" && was != ids[key] {
		// A moment later: the plugin still holds the lock.
		r.EnqueueAfter(was, 50*time.Millisecond)
	}
}
