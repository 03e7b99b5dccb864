package policydir

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/shared/state"
)

// Options of Watch. The zero value of each means its default.
type Options struct {
	Debounce time.Duration // quiet time after an event before reading, default 20 ms
	Longest  time.Duration // a busy directory is read at least this often, default 200 ms
	Rescan   time.Duration // read without any event, default 2 s
	Log      *slog.Logger  // default slog.Default()

	// StateDir is where it is kept what files said last, for a process that starts while one is broken.
	// Empty: nowhere.
	StateDir string
}

func (o Options) withDefaults() Options {
	if o.Debounce <= 0 {
		o.Debounce = 20 * time.Millisecond
	}
	if o.Longest <= 0 {
		o.Longest = 200 * time.Millisecond
	}
	if o.Rescan <= 0 {
		o.Rescan = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Watch calls deliver with a snapshot at once, and again after every change, until ctx ends; then it
// returns nil. It returns an error only if the directory cannot be read at the start. The directory may
// go and come back later: see the package comment.
func Watch(ctx context.Context, dir string, opts Options, deliver func(Snapshot)) error {
	dir, err := filepath.Abs(dir) // events carry names as they were asked for: ask for one form
	if err != nil {
		return fmt.Errorf("read policy directory: %w", err)
	}
	w := watcher{opts: opts.withDefaults(), dir: dir, reader: NewReader(dir), deliver: deliver}
	w.reader.calm, w.reader.settle = w.opts.Debounce, patience
	if opts.StateDir != "" {
		w.reader.kept = state.New(opts.StateDir).Manifests(dir)
	}
	if _, err := w.reader.Read(); err != nil {
		return err
	}
	w.open()
	defer w.close()
	// Once more: a change between the first look and the watch has no event.
	_, err = w.reader.Read()
	w.hand(err)
	w.run(ctx)
	return nil
}

type watcher struct {
	opts    Options
	dir     string
	reader  *Reader
	deliver func(Snapshot)

	notify  *fsnotify.Watcher // nil if the kernel refused one: then only the rescan is left
	watched os.FileInfo       // what the watch on dir is on, nil if none
	problem string            // of the directory or the watch, as last delivered
}

// open starts to listen. Without inotify the rescan goes on alone.
func (w *watcher) open() {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		w.opts.Log.Warn("policy directory is read every few seconds only", "dir", w.dir, "error", err)
		return
	}
	w.notify = n
	if err := n.Add(filepath.Dir(w.dir)); err != nil { // sees the directory itself replaced; the rescan does too
		w.opts.Log.Debug("watch parent of policy directory", "dir", w.dir, "error", err)
	}
	w.follow()
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// follow keeps the watch on what the path names now: a watch is on an inode, not on a name.
func (w *watcher) follow() {
	if w.notify == nil {
		return
	}
	now, err := os.Stat(w.dir)
	if err == nil && w.watched != nil && os.SameFile(now, w.watched) {
		return
	}
	if w.watched != nil {
		_ = w.notify.Remove(w.dir) // already gone with its inode, if that was deleted
		w.watched = nil
	}
	if err != nil {
		return
	}
	if err := w.notify.Add(w.dir); err != nil {
		w.opts.Log.Warn("watch policy directory", "dir", w.dir, "error", err)
		return
	}
	w.watched = now
}

// run waits for events and reads when they have calmed down.
func (w *watcher) run(ctx context.Context) {
	var events chan fsnotify.Event
	var errs chan error
	if w.notify != nil {
		events, errs = w.notify.Events, w.notify.Errors
	}
	rescan := time.NewTicker(w.opts.Rescan)
	defer rescan.Stop()
	var first time.Time // event that has not been answered by a look yet
	calm := time.NewTimer(time.Hour)
	calm.Stop()
	defer calm.Stop()
	overdue := false // a rescan
	for {
		thorough := true
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if !w.concerns(e) {
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			calm.Reset(min(w.opts.Debounce, max(0, w.opts.Longest-time.Since(first))))
			continue
		case err := <-errs: // also when events were lost: look now
			w.opts.Log.Warn("watch policy directory", "dir", w.dir, "error", err)
		case <-calm.C:
			thorough = overdue
		case <-rescan.C:
			if !first.IsZero() {
				overdue = true
				continue // a look is due anyway; a rescan must not cut the calm short
			}
		}
		first = time.Time{}
		calm.Stop()
		overdue = false
		w.look(thorough)
		if len(w.reader.waiting) > 0 {
			first = time.Now()
			calm.Reset(w.opts.Debounce)
		}
	}
}

// concerns says whether an event can change what is read. Names are not filtered inside the directory:
// ..data is a name too.
func (w *watcher) concerns(e fsnotify.Event) bool {
	if e.Op == fsnotify.Chmod && filepath.Dir(e.Name) != w.dir {
		return false
	}
	return filepath.Dir(e.Name) == w.dir || e.Name == w.dir
}

func (w *watcher) look(thorough bool) {
	w.follow()
	changed, err := w.reader.read(thorough)
	if changed || problemOf(err) != w.problem {
		w.hand(err)
	}
}

// hand delivers a snapshot.
func (w *watcher) hand(err error) {
	w.problem = problemOf(err)
	s := w.reader.Snapshot()
	if err != nil {
		s.Problems = append(s.Problems, apis.Problem{
			File:    w.dir,
			Message: fmt.Sprintf("%v; everything that was read last stays in force", err),
		})
	}
	w.deliver(s)
}

func problemOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
