package install

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const rounds = 20

// content is a primary's configuration that differs in every round, in length too.
func content(round int) string {
	return conflist(fmt.Sprintf(`{"type":"aws-cni","round":%q}`, strings.Repeat("x", 100-3*round)), portmap)
}

func contentWithLatch(round int) string {
	return strings.Replace(content(round), portmap, portmap+","+bare, 1)
}

// However the primary's file is written, ours has its content and latch within a second, and is whole
// at every instant.
func TestFollowsEveryWayOfWriting(t *testing.T) {
	for _, w := range writers {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.write(primaryName, content(rounds))
			g.runFor(time.Minute) // a busy machine may take long between delete and create
			g.wantSoon(DefaultName, contentWithLatch(rounds))
			stop := g.alwaysLatched()
			defer stop()
			for i := range rounds {
				if err := w.write(g, primaryName, content(i), i); err != nil {
					t.Fatal(err)
				}
				g.wantSoon(DefaultName, contentWithLatch(i))
			}
			if have := g.read(primaryName); have != content(rounds-1) {
				t.Errorf("the primary's file was changed: %s", have)
			}
		})
	}
}

// In place our entry is back within a second, and nothing else is changed.
func TestInPlaceFollowsEveryWayOfWriting(t *testing.T) {
	for _, w := range writers {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.cfg.InPlace = true
			g.write(primaryName, content(rounds))
			g.run()
			g.wantSoon(primaryName, contentWithLatch(rounds))
			for i := range rounds {
				if err := w.write(g, primaryName, content(i), i); err != nil {
					t.Fatal(err)
				}
				g.wantSoon(primaryName, contentWithLatch(i))
			}
			if _, err := os.Lstat(g.path(DefaultName)); err == nil {
				t.Error("there is a file of our own, too")
			}
			st, err := os.Lstat(g.path(primaryName))
			if link := strings.Contains(w.name, "symlink"); err != nil || link != (st.Mode()&os.ModeSymlink != 0) {
				t.Errorf("symlink %v, have %v, %v", link, st.Mode(), err)
			}
		})
	}
}

// A write of the primary's that comes while ours is on its way is never lost.
func TestInPlaceLosesNoWrite(t *testing.T) {
	g := newGround(t)
	g.cfg.InPlace = true
	g.write(primaryName, content(0))
	g.run()
	for i := range 10 {
		for j := range 20 {
			if err := writers[0].write(g, primaryName, content((i+j)%rounds), 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(j) * 100 * time.Microsecond)
		}
		g.wantSoon(primaryName, contentWithLatch((i+rounds-1)%rounds))
	}
}

func TestKeepsTheLastGoodContent(t *testing.T) {
	g := newGround(t)
	g.write(primaryName, content(0))
	f := g.run()
	g.wantSoon(DefaultName, contentWithLatch(0))
	for _, bad := range []string{"", "{", content(1)[:50], content(1) + "x", conflist(bare), strings.Replace(content(1), "0.4.0", "0.2.0", 1)} {
		g.write(primaryName, bad)
		g.eventually(func() error { return wantProblem(f, "the last good one stays") })
		g.wantSoon(DefaultName, contentWithLatch(0))
	}
	// Another process knows it from our file.
	f = g.run()
	g.eventually(func() error { return wantProblem(f, "the last good one stays") })
	g.wantSoon(DefaultName, contentWithLatch(0))
	g.write(primaryName, content(2))
	g.wantSoon(DefaultName, contentWithLatch(2))
	g.eventually(func() error { return wantProblem(f, "") })
}

func wantProblem(f *Follower, want string) error {
	if have := f.Problem(); !strings.Contains(have, want) || want == "" && have != "" {
		return fmt.Errorf("want a problem with %q, have %q", want, have)
	}
	return nil
}

// Without the primary our file stays, for DEL, and refuses ADD. Another configuration that appears is
// followed, and so is the primary when it is back.
func TestPrimaryRemoved(t *testing.T) {
	g := newGround(t)
	g.write(primaryName, conflist(vpc))
	f := g.run()
	g.wantSoon(DefaultName, conflist(vpc, bare))
	g.remove(primaryName)
	gone := func(name string) string {
		return conflist(vpc, fmt.Sprintf(`{"type":"latch","disabled":"the primary CNI's configuration%s is gone from %s"}`, name, g.dir))
	}
	g.wantSoon(DefaultName, gone(" "+primaryName))
	g.eventually(func() error { return wantProblem(f, "no configuration of a primary CNI") })

	again := g.run() // a process that has not seen it
	g.eventually(func() error { return wantProblem(again, "no configuration of a primary CNI") })
	g.wantSoon(DefaultName, gone(" "+primaryName))

	g.write("20-other.conflist", conflist(portmap))
	g.wantSoon(DefaultName, conflist(portmap, bare))
	g.write(primaryName, content(3))
	g.wantSoon(DefaultName, contentWithLatch(3))
	g.remove(primaryName)
	g.wantSoon(DefaultName, conflist(portmap, bare))
}

// A broken primary that is deleted is never said to be in order, not even while it may still come back.
func TestBrokenPrimaryRemoved(t *testing.T) {
	g := newGround(t)
	g.write(primaryName, "{")
	var said bytes.Buffer
	g.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
	f := NewFollower(g.cfg)
	f.note(f.Look())
	g.write(primaryName, conflist(vpc))
	f.note(f.Look())
	g.write(primaryName, "{")
	f.note(f.Look())
	said.Reset()
	g.remove(primaryName)
	f.note(f.Look())
	f.grace = 0
	f.note(f.Look())
	if err := wantProblem(f, "no configuration of a primary CNI"); err != nil || strings.Contains(said.String(), "in order") {
		t.Errorf("%v; it said:\n%s", err, said.String())
	}
}

// On a new node nothing may start before the primary is there.
func TestNoPrimaryYet(t *testing.T) {
	g := newGround(t)
	f := g.run()
	want := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"latch","plugins":[{"type":"latch","disabled":"there is no configuration of a primary CNI in %s yet"}]}`+"\n", g.dir)
	g.wantSoon(DefaultName, want)
	g.write("99-loopback.conf", `{"cniVersion":"0.4.0","name":"lo","type":"loopback"}`)
	g.write(primaryName, "{")
	g.eventually(func() error { return wantProblem(f, "unexpected end") })
	g.eventually(func() error {
		if have := g.read(DefaultName); !strings.Contains(have, primaryName+" cannot be used") {
			return fmt.Errorf("have %s", have)
		}
		return nil
	})
	g.write(primaryName, conflist(vpc))
	g.wantSoon(DefaultName, conflist(vpc, bare))
}

// What others do to our own file does not last.
func TestOwnFileIsRepaired(t *testing.T) {
	g := newGround(t)
	g.cfg.StateDir = "/somewhere"
	g.write(primaryName, conflist(vpc))
	g.run()
	want := conflist(vpc, `{"type":"latch","stateDir":"/somewhere"}`)
	g.wantSoon(DefaultName, want)
	for _, wrong := range []string{"", conflist(vpc), conflist(vpc, bare), conflist(vpc, `{"type":"latch","stateDir":"/elsewhere"}`)} {
		g.write(DefaultName, wrong)
		g.wantSoon(DefaultName, want)
	}
	g.remove(DefaultName)
	g.wantSoon(DefaultName, want)
	g.eventually(func() error { return os.RemoveAll(g.dir) }) // it is being written to
	time.Sleep(50 * time.Millisecond)
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g.write(primaryName, content(1))
	g.eventually(func() error {
		have, err := os.ReadFile(g.path(DefaultName))
		if err != nil || !strings.Contains(string(have), "somewhere") {
			return fmt.Errorf("have %s, %v", have, err)
		}
		return nil
	})
}

func TestNothingIsWrittenTwice(t *testing.T) {
	g := newGround(t)
	g.write(primaryName, conflist(vpc))
	g.run()
	g.wantSoon(DefaultName, conflist(vpc, bare))
	before, err := os.Stat(g.path(DefaultName))
	if err != nil {
		t.Fatal(err)
	}
	if before.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, want the primary's", before.Mode())
	}
	for range 3 {
		g.write(primaryName, conflist(vpc)) // the same again
		time.Sleep(rescan / 2)
	}
	after, err := os.Stat(g.path(DefaultName))
	if err != nil || !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("before %v, after %v, %v", before, after, err)
	}
	left, err := filepath.Glob(g.path(tempPrefix + "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// Settings in an entry that the primary's file has stay; keys that latchd sets do not, and the log names both, once.
func TestSettingsOfThePrimarysEntryStay(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		t.Run(fmt.Sprintf("in place %v", inPlace), func(t *testing.T) {
			g := newGround(t)
			var said bytes.Buffer
			g.cfg.Log, g.cfg.InPlace = slog.New(slog.NewTextHandler(&said, nil)), inPlace
			g.write(primaryName, conflist(vpc, `{"type":"latch","stateDir":"/other","enforcingMode":"strict","antiSpoof":true}`))
			f := NewFollower(g.cfg)
			for range 3 {
				if err := f.Look(); err != nil {
					t.Fatal(err)
				}
			}
			file := DefaultName
			if inPlace {
				file = primaryName
			}
			if have, want := g.read(file), conflist(vpc, `{"type":"latch","antiSpoof":true,"enforcingMode":"strict"}`); have != want {
				t.Errorf("have %s, want %s", have, want)
			}
			for _, once := range []string{`level=WARN`, `stateDir=\"/other\"`} {
				if n := strings.Count(said.String(), once); n != 1 {
					t.Errorf("%d times %s:\n%s", n, once, said.String())
				}
			}
			if !strings.Contains(said.String(), "antiSpoof=true") {
				t.Error(said.String())
			}
		})
	}
}

// A problem that lasts is told once, on one line: its text is the same each time.
func TestProblemThatLastsIsToldOnce(t *testing.T) {
	tests := []struct {
		name, want string
		make       func(g *ground)
	}{
		{"no folder", "does not exist", func(g *ground) { g.cfg.ConfDir = g.path("none") }},
		{"our file cannot be written", "file exists", func(g *ground) { g.mkdir(DefaultName) }},
		{"two problems", "; ", func(g *ground) {
			g.cfg.Primary = "x.conflist"
			g.mkdir(DefaultName)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGround(t)
			g.write(primaryName, conflist(vpc))
			tt.make(g)
			var said bytes.Buffer
			g.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
			f := NewFollower(g.cfg)
			for range 3 {
				f.note(f.Look())
				if p := f.Problem(); !strings.Contains(p, tt.want) || strings.Contains(p, "\n") {
					t.Errorf("the problem is %q", p)
				}
			}
			if n := strings.Count(said.String(), "level="); n != 1 {
				t.Errorf("%d lines:\n%s", n, said.String())
			}
		})
	}
}
