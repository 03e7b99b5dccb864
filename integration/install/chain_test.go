package install

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/latch-cni/latch/shared/testenv"
)

// The primary CNI writes its file again and again, by every means and without us, while the runtime
// starts a pod every 100 ms: none is unfiltered (R14.1).
func TestRewritesLeaveNoPodUnfiltered(t *testing.T) {
	g := newGround(t, options{})
	open := g.openPod("open")
	g.writePrimary(g.primary())
	g.install()
	g.start()

	path := g.criRuntime.conflist(primaryName)
	ways := map[string]func(round int) error{
		"rename": func(int) error {
			return errors.Join(os.WriteFile(path+".tmp", []byte(g.primary()), 0o644), os.Rename(path+".tmp", path))
		},
		"in place": func(int) error { return os.WriteFile(path, []byte(g.primary()), 0o644) },
		"symlink": func(round int) error {
			target := filepath.Join(g.cacheDir, fmt.Sprint("primary", round))
			return errors.Join(os.WriteFile(target, []byte(g.primary()), 0o644), os.Symlink(target, path+".tmp"), os.Rename(path+".tmp", path))
		},
	}
	const rounds, pods = 20, 20
	done := make(chan error, 1)
	var started atomic.Int32
	go func() {
		var err error
		for again := true; again && err == nil; again = started.Load() < pods { // a busy machine needs longer for them
			for way, write := range ways {
				for i := range rounds {
					if e := write(i); e != nil {
						err = errors.Join(err, fmt.Errorf("%s: %w", way, e))
					}
					time.Sleep(time.Duration(20+rand.IntN(150)) * time.Millisecond)
				}
			}
		}
		done <- err
	}()
	var sent []string
	refused := 0
	for running := true; running; {
		next := time.After(100 * time.Millisecond)
		name := fmt.Sprintf("p%d", len(sent)+refused)
		s := newSandbox(t, name)
		if err := g.add(s); err != nil {
			t.Logf("refused: %v", err)
			refused++
		} else {
			g.send(s, name)
			sent = append(sent, name)
		}
		started.Store(int32(len(sent) + refused))
		g.check(g.del(s))
		s.Remove(t)
		select {
		case err := <-done:
			g.check(err)
			running = false
		case <-next:
		}
	}
	g.wantShut(open, sent...)
	t.Logf("%d pods started, %d refused", len(sent), refused)
	if refused > 0 {
		t.Errorf("%d pods started, %d refused", len(sent), refused)
	}
}

// A new plugin of the primary's is taken over, before ours (R14.2).
func TestNewPluginOfThePrimary(t *testing.T) {
	g := newGround(t, options{})
	g.writePrimary(g.primary())
	g.install()
	g.start()
	bandwidth := `{"type":"bandwidth","capabilities":{"bandwidth":true}}`
	g.writePrimary(g.primary(bandwidth))
	testenv.Eventually(t, 2*time.Second, func() error {
		list, err := g.network()
		if err != nil {
			return err
		}
		var order []string
		for _, p := range list.Plugins {
			order = append(order, p.Network.Type)
		}
		if got := strings.Join(order, " "); got != "ptp bandwidth latch" {
			return errors.New(got)
		}
		return nil
	})
	g.send(g.pod("a"), "a")
	g.wantShut(g.openPod("open"), "a")
}

// Without the primary's configuration ADD is refused with a clear message, and DEL works (R14.3).
func TestPrimaryRemoved(t *testing.T) {
	g := newGround(t, options{})
	g.writePrimary(strings.Replace(g.primary(), "1.0.0", "1.1.0", 1))
	g.install()
	g.start()
	a := newSandbox(t, "a")
	g.check(g.add(a))
	g.check(g.status())
	g.check(os.Remove(g.criRuntime.conflist(primaryName)))
	b := newSandbox(t, "b")
	testenv.Eventually(t, 2*time.Second, func() error { return wantRefusal(g.status(), types.ErrPluginNotAvailable, primaryName+" is gone") })
	if err := wantRefusal(g.add(b), types.ErrTryAgainLater, primaryName+" is gone"); err != nil {
		t.Error(err)
	}
	g.check(g.del(b))
	g.check(g.del(a))
	g.writePrimary(g.primary())
	testenv.Eventually(t, 2*time.Second, func() error { return g.tryAdd(b) })
	g.check(g.del(b))
}

func wantRefusal(err error, code uint, message string) error {
	var cni *types.Error
	if !errors.As(err, &cni) || cni.Code != code || !strings.Contains(cni.Msg+cni.Details, message) {
		return fmt.Errorf("want code %d and %q, have %v", code, message, err)
	}
	return nil
}

// latchd that ends leaves our file, and what it says holds; after a reboot that it does not survive the
// files on disk keep pods from starting unfiltered (R14.4, boot order).
func TestNodeWithoutLatchd(t *testing.T) {
	g := newGround(t, options{})
	g.writePrimary(g.primary())
	g.install()
	g.start()
	g.check(g.node.StopLatchd())
	before := g.read("05-latch.conflist")
	g.send(g.pod("a"), "a")
	g.wantShut(g.openPod("open"), "a")
	g.writePrimary(g.primary(`{"type":"bandwidth"}`)) // nobody follows it now
	g.send(g.pod("b"), "b")
	g.wantShut(g.openPod("open2"), "b")
	if after := g.read("05-latch.conflist"); after != before {
		t.Errorf("our file was\n%s\nand is\n%s", before, after)
	}
}

func TestBootWithoutLatchd(t *testing.T) {
	g := newGround(t, options{})
	g.ownFolders()
	g.writePrimary(g.primary())
	g.install() // and the node boots: no records in /run, no pins, latchd is not there yet
	s := newSandbox(t, "a")
	if err := wantRefusal(g.add(s), types.ErrTryAgainLater, "a"); err != nil {
		t.Error(err)
	}
	g.check(g.del(s))
	g.start()
	g.check(g.add(s))
	g.send(s, "a")
	g.wantShut(g.openPod("open"), "a")
	g.check(g.del(s))
}

// A node that has had no primary CNI yet starts nothing before it has.
func TestNodeWithoutPrimary(t *testing.T) {
	g := newGround(t, options{})
	g.ownFolders()
	g.install()
	s := newSandbox(t, "a")
	if err := wantRefusal(g.add(s), types.ErrTryAgainLater, "no configuration of a primary CNI"); err != nil {
		t.Error(err)
	}
	if err := wantRefusal(g.status(), types.ErrPluginNotAvailable, "no configuration of a primary CNI"); err != nil {
		t.Error(err)
	}
	g.check(g.del(s))
	g.start()
	g.writePrimary(g.primary())
	testenv.Eventually(t, 2*time.Second, func() error { return g.tryAdd(s) })
	g.send(s, "a")
	g.wantShut(g.openPod("open"), "a")
	g.check(g.del(s))
}

// Multus points at the primary's file: it has our entry, also after it was rewritten.
func TestInPlace(t *testing.T) {
	g := newGround(t, options{latchd: []string{"--in-place"}})
	g.writePrimary(g.primary())
	g.install("--in-place")
	g.start()
	g.send(g.pod("a"), "a")
	g.writePrimary(g.primary())
	testenv.Eventually(t, time.Second, func() error {
		if !strings.Contains(g.read(primaryName), `"latch"`) {
			return errors.New("not there")
		}
		return nil
	})
	g.send(g.pod("b"), "b")
	g.wantShut(g.openPod("open"), "a", "b")
	if files, err := os.ReadDir(g.confDir); err != nil || len(files) != 1 {
		t.Errorf("have %v, %v", files, err)
	}
}
