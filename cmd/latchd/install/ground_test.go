package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
)

// patience is how soon a change must be taken over.
const patience = time.Second

// ground is a folder of configurations.
type ground struct {
	t   *testing.T
	dir string
	cfg Config
}

func newGround(t *testing.T) *ground {
	dir := t.TempDir()
	return &ground{t: t, dir: dir, cfg: Config{ConfDir: dir}}
}

const primaryName = "10-aws.conflist"

func (g *ground) path(name string) string { return filepath.Join(g.dir, name) }

func (g *ground) write(name, content string) {
	g.t.Helper()
	if err := os.WriteFile(g.path(name), []byte(content), 0o644); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) mkdir(name string) {
	g.t.Helper()
	if err := os.Mkdir(g.path(name), 0o755); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) read(name string) string {
	g.t.Helper()
	b, err := os.ReadFile(g.path(name))
	if err != nil {
		g.t.Fatal(err)
	}
	return string(b)
}

func (g *ground) remove(name string) {
	g.t.Helper()
	if err := os.Remove(g.path(name)); err != nil {
		g.t.Fatal(err)
	}
}

// run starts a follower that ends with the test.
func (g *ground) run() *Follower {
	g.t.Helper()
	return g.runFor(grace)
}

// runFor is run with another time for which a primary may be gone.
func (g *ground) runFor(grace time.Duration) *Follower {
	g.t.Helper()
	f := NewFollower(g.cfg)
	f.grace = grace
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	g.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return f
}

// wantSoon waits until the file has this content.
func (g *ground) wantSoon(name, want string) {
	g.t.Helper()
	g.eventually(func() error {
		have, err := os.ReadFile(g.path(name))
		if err != nil || string(have) != want {
			return fmt.Errorf("%s: want\n%s\nhave\n%s\n%w", name, want, have, err)
		}
		return nil
	})
}

func (g *ground) eventually(check func() error) {
	g.t.Helper()
	begin := time.Now()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Since(begin) > patience {
			g.t.Fatalf("after %v: %v", patience, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// latched tells whether a conflist is good for a runtime, and whether latch is its last plugin.
func latched(content []byte) error {
	list, err := libcni.NetworkConfFromBytes(content)
	if err != nil {
		return err
	}
	if last := list.Plugins[len(list.Plugins)-1]; last.Network.Type != "latch" {
		return fmt.Errorf("the last plugin is %s", last.Network.Type)
	}
	if strings.Contains(string(content), "disabled\"") {
		return errors.New("it is disabled")
	}
	return nil
}

// alwaysLatched reads our file until the returned function is called, and fails if it is ever not there,
// not whole, or without latch.
func (g *ground) alwaysLatched() func() {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				if n < 10 {
					g.t.Errorf("looked %d times only", n)
				}
				return
			default:
			}
			content, err := os.ReadFile(g.path(DefaultName))
			if err == nil {
				err = latched(content)
			}
			if err != nil {
				g.t.Errorf("our file: %v: %s", err, content)
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// A writer puts content into a file of the folder, by its own means.
type writer struct {
	name  string
	write func(g *ground, name, content string, round int) error
}

var writers = []writer{
	{"rename", func(g *ground, name, content string, _ int) error {
		tmp := g.path(name) + ".tmp"
		return errors.Join(os.WriteFile(tmp, []byte(content), 0o644), os.Rename(tmp, g.path(name)))
	}},
	{"rename from another folder", func(g *ground, name, content string, _ int) error {
		tmp := filepath.Join(g.t.TempDir(), name)
		return errors.Join(os.WriteFile(tmp, []byte(content), 0o644), os.Rename(tmp, g.path(name)))
	}},
	{"write in place, in two halves", func(g *ground, name, content string, _ int) error {
		f, err := os.OpenFile(g.path(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		half := len(content) / 2
		_, err1 := f.WriteString(content[:half])
		time.Sleep(10 * time.Millisecond)
		_, err2 := f.WriteString(content[half:])
		return errors.Join(err1, err2, f.Close())
	}},
	{"overwrite, then truncate", func(g *ground, name, content string, _ int) error {
		f, err := os.OpenFile(g.path(name), os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		_, err = f.WriteString(content)
		time.Sleep(5 * time.Millisecond)
		return errors.Join(err, f.Truncate(int64(len(content))), f.Close())
	}},
	{"delete, then create", func(g *ground, name, content string, _ int) error {
		err := os.Remove(g.path(name))
		time.Sleep(10 * time.Millisecond)
		return errors.Join(err, os.WriteFile(g.path(name), []byte(content), 0o644))
	}},
	{"symlink swapped", func(g *ground, name, content string, round int) error {
		dir := filepath.Join(g.dir, fmt.Sprintf("round%d", round))
		link := g.path("link.tmp")
		return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644),
			os.Symlink(filepath.Join(dir, name), link), os.Rename(link, g.path(name)))
	}},
	{"symlink of a symlink swapped, as a mounted ConfigMap", func(g *ground, name, content string, round int) error {
		dir, link := fmt.Sprintf("..round%d", round), g.path("link.tmp")
		err := errors.Join(os.Mkdir(g.path(dir), 0o755), os.WriteFile(filepath.Join(g.path(dir), name), []byte(content), 0o644),
			os.Symlink(dir, link), os.Rename(link, g.path("..data")))
		if round > 0 || err != nil {
			return err
		}
		return errors.Join(os.Symlink(filepath.Join("..data", name), link), os.Rename(link, g.path(name)))
	}},
	{"symlink swapped far away", func(g *ground, name, content string, round int) error {
		far := filepath.Join(g.dir, "far")
		dir, link := filepath.Join(far, fmt.Sprint("v", round)), filepath.Join(far, "link.tmp")
		err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644),
			os.Symlink(dir, link), os.Rename(link, filepath.Join(far, "current")))
		if round > 0 || err != nil {
			return err
		}
		return errors.Join(os.Symlink(filepath.Join(far, "current", name), link), os.Rename(link, g.path(name)))
	}},
	{"target of a symlink written", func(g *ground, name, content string, round int) error {
		far := filepath.Join(g.dir, "far")
		err := errors.Join(os.MkdirAll(far, 0o755), os.WriteFile(filepath.Join(far, name), []byte(content), 0o644))
		if round > 0 || err != nil {
			return err
		}
		return errors.Join(os.Symlink(filepath.Join(far, name), g.path("link.tmp")), os.Rename(g.path("link.tmp"), g.path(name)))
	}},
}
