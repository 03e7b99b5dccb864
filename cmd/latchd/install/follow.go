package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// rescan is how often the folder is read without any event: events can be lost, and a symlink can
	// change far away.
	rescan = 500 * time.Millisecond
	// grace is how long a primary may be gone before it counts as removed: some writers delete first.
	grace = 300 * time.Millisecond
)

// Follower keeps our place in the CNI configuration.
type Follower struct {
	cfg   Config
	grace time.Duration

	// Of Look, which is for one goroutine.
	followed string      // name of the primary's file
	good     []byte      // its last good content, as a conflist
	mode     fs.FileMode // of the file
	lost     time.Time   // when it was found to be gone
	last     error       // what was not as it should be
	told     string      // what was last said of keys in an entry that is there

	mu      sync.Mutex
	problem string
}

// NewFollower returns a follower that has not looked yet.
func NewFollower(cfg Config) *Follower {
	return &Follower{cfg: cfg.withDefaults(), grace: grace, mode: 0o600}
}

// Problem says what keeps our place from being as it should, empty if nothing does.
func (f *Follower) Problem() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem
}

// Run follows the primary's configuration until the context ends. Our file stays then.
func (f *Follower) Run(ctx context.Context) {
	w := newWatch(f.cfg.Log)
	defer w.close()
	tick := time.NewTicker(rescan)
	defer tick.Stop()
	events, errs := w.events()
	for {
		w.on(f.cfg.ConfDir, f.target())
		f.note(f.Look())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-events:
		case <-errs:
		}
	}
}

func (f *Follower) note(err error) {
	said := ""
	if err != nil {
		said = strings.ReplaceAll(err.Error(), "\n", "; ") // errors that were joined
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if said != f.problem {
		if err != nil {
			f.cfg.Log.Error("CNI configuration", "error", said)
		} else {
			f.cfg.Log.Info("CNI configuration is in order again")
		}
	}
	f.problem = said
}

// target is the folder of the file that the primary's name leads to.
func (f *Follower) target() string {
	path, err := filepath.EvalSymlinks(f.cfg.path(f.followed))
	if f.followed == "" || err != nil {
		return ""
	}
	return filepath.Dir(path)
}

// Look brings the configuration up to date once. The error says what is not as it should be; what can
// be done in spite of it has been done.
func (f *Follower) Look() error {
	if _, err := os.Stat(f.cfg.ConfDir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("folder of CNI configurations %s does not exist", f.cfg.ConfDir)
	}
	name, err := f.cfg.primary()
	if err != nil && !errors.Is(err, errNoPrimary) {
		return err
	}
	switch {
	case f.waits(name): // what was last said holds
	case f.cfg.InPlace:
		f.last = f.inPlace(name, err)
	default:
		f.last = f.ownFile(name, err)
	}
	return f.last
}

// waits reports true while a primary that we follow may only be on its way from one file to the next.
func (f *Follower) waits(name string) bool {
	_, err := os.Stat(f.cfg.path(f.followed))
	if f.followed == "" || name == f.followed || !errors.Is(err, fs.ErrNotExist) {
		f.lost = time.Time{}
		return false
	}
	if f.lost.IsZero() {
		f.lost = time.Now()
	}
	return time.Since(f.lost) < f.grace
}

// ownFile keeps our own file.
func (f *Follower) ownFile(name string, missing error) error {
	if missing != nil {
		return errors.Join(missing, f.keep(f.gone()))
	}
	conflist, mode, err := f.cfg.read(name)
	if err == nil {
		_, err = withEntry(conflist, f.cfg.entry(""))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("CNI configuration %s, the last good one stays: %w", f.cfg.path(name), err),
			f.keep("", fmt.Sprintf("the primary CNI's configuration %s cannot be used: %v", name, err)))
	}
	f.followed, f.good, f.mode = name, conflist, mode
	f.tell(conflist)
	return f.write(conflist, "")
}

// tell logs what the primary's configuration says in an entry of ours, when it is not what was told last.
func (f *Follower) tell(conflist []byte) {
	kept, dropped := otherKeys(conflist, f.cfg.entry(""))
	said := fmt.Sprint(kept, dropped)
	if said == f.told {
		return
	}
	f.told = said
	if len(kept) > 0 {
		f.cfg.Log.Info("the primary's configuration has settings of latch: they stay, before those of latchd's flags", "keys", kept)
	}
	if len(dropped) > 0 {
		f.cfg.Log.Warn("the primary's configuration has keys of latch that are latchd's to set by its flags: they are dropped", "keys", dropped)
	}
}

// gone says why ADD is refused without a primary: with a content to keep, and with none.
func (f *Follower) gone() (string, string) {
	name, yet := f.followed, "a primary CNI"
	if f.cfg.Primary != "" {
		yet = "the primary CNI named " + f.cfg.Primary
	}
	without := fmt.Sprintf("there is no configuration of %s in %s yet", yet, f.cfg.ConfDir)
	switch {
	case name != "":
		name = " " + name
	case f.cfg.Primary != "":
		return without, without
	}
	return fmt.Sprintf("the primary CNI's configuration%s is gone from %s", name, f.cfg.ConfDir), without
}

// keep keeps the last good content, also that of an earlier process, with the entry disabled for a
// reason if there is one. Without such content the file refuses every ADD, for another reason.
func (f *Follower) keep(disabled, without string) error {
	base := f.good
	if base == nil {
		own, err := f.cfg.own()
		if err != nil {
			return err
		}
		for _, name := range append(own, f.cfg.Name) { // of them the one that is to be, if it is good
			content, err := os.ReadFile(f.cfg.path(name))
			if err != nil {
				continue
			}
			if _, err := withEntry(content, f.cfg.entry("")); err == nil {
				base = content
			}
		}
	}
	if base == nil {
		base = []byte(`{"cniVersion":"1.1.0","name":"latch","plugins":[` + string(f.cfg.entry(without).json()) + "]}\n")
		return f.put(base)
	}
	return f.write(base, disabled)
}

func (f *Follower) write(conflist []byte, disabled string) error {
	content, err := withEntry(conflist, f.cfg.entry(disabled))
	if err != nil {
		return err
	}
	return f.put(content)
}

func (f *Follower) put(content []byte) error {
	path := f.cfg.path(f.cfg.Name)
	changed, err := replace(path, content, f.mode)
	if changed && err == nil {
		f.cfg.Log.Info("wrote CNI configuration", "file", path, "primary", f.followed)
	}
	if err == nil {
		err = f.cfg.hidden()
	}
	if err != nil {
		return err
	}
	return f.cfg.removeOwn(f.cfg.Name) // those from before it had this name
}

// inPlace keeps our entry in the primary's file.
func (f *Follower) inPlace(name string, missing error) error {
	if missing != nil {
		return missing
	}
	f.followed = name
	path := f.cfg.path(name)
	if err := f.cfg.editable(name); err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	want, err := withEntry(have, f.cfg.entry(""))
	if err != nil {
		return fmt.Errorf("CNI configuration %s: %w", path, err)
	}
	f.tell(have)
	if !bytes.Equal(have, want) {
		edited, err := edit(path, have, want, st.Mode().Perm())
		if err != nil || !edited { // written meanwhile: the event of that is on its way
			return err
		}
		f.cfg.Log.Info("put latch into CNI configuration", "file", path)
	}
	return f.cfg.removeOwn("") // of the other mode: its content is in force by now
}
