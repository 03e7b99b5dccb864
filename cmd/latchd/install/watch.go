package install

import (
	"log/slog"
	"os"

	"github.com/fsnotify/fsnotify"
)

// watch tells of changes in folders.
type watch struct {
	log    *slog.Logger
	notify *fsnotify.Watcher      // nil if the kernel refused one: then only the rescan is left
	dirs   map[string]os.FileInfo // what each watch is on: an inode, not a name
}

func newWatch(log *slog.Logger) *watch {
	w := &watch{log: log, dirs: map[string]os.FileInfo{}}
	var err error
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		log.Warn("CNI configuration is read now and then only", "every", rescan, "error", err)
		w.notify = nil
	}
	return w
}

func (w *watch) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// on watches these folders, as their names lead to them now, and no others. Empty names are none.
func (w *watch) on(dirs ...string) {
	if w.notify == nil {
		return
	}
	want := map[string]os.FileInfo{}
	for _, d := range dirs {
		if st, err := os.Stat(d); d != "" && err == nil {
			want[d] = st
		}
	}
	for d, st := range w.dirs {
		if now, ok := want[d]; !ok || !os.SameFile(st, now) {
			_ = w.notify.Remove(d) // gone already, if the folder was deleted
			delete(w.dirs, d)
		}
	}
	for d, st := range want {
		if _, ok := w.dirs[d]; ok {
			continue
		}
		if err := w.notify.Add(d); err != nil {
			w.log.Warn("watch CNI configuration", "folder", d, "error", err)
			continue
		}
		w.dirs[d] = st
	}
}

// events returns the channels of the kernel; an error may mean that events were lost.
func (w *watch) events() (<-chan fsnotify.Event, <-chan error) {
	if w.notify == nil {
		return nil, nil
	}
	return w.notify.Events, w.notify.Errors
}
