package install

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// installs runs Install on the ground, with a plugin to copy.
func (g *ground) installs(tweak func(o *Options)) error {
	g.t.Helper()
	plugin := filepath.Join(g.t.TempDir(), "latch")
	if err := os.WriteFile(plugin, []byte("plugin"), 0o755); err != nil {
		g.t.Fatal(err)
	}
	o := Options{Config: g.cfg, BinDir: g.t.TempDir(), Plugin: plugin, TakeOver: true}
	o.StateDir = g.t.TempDir()
	if tweak != nil {
		tweak(&o)
	}
	err := Install(o)
	if _, missing := os.Stat(filepath.Join(o.BinDir, pluginType)); err != nil && !errors.Is(missing, fs.ErrNotExist) {
		g.t.Errorf("a failed installation left the plugin: %v", missing)
	}
	return err
}

// names are those of the folder's files.
func (g *ground) names() string {
	g.t.Helper()
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		g.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// What cannot be right is refused before anything is written.
func TestInstallRefuses(t *testing.T) {
	for _, test := range []struct {
		name, file, want string
		tweak            func(o *Options)
	}{
		{"a name that leads elsewhere", primaryName, "plain file name", func(o *Options) { o.Name = "../foo.conflist" }},
		{"a name that no runtime reads", primaryName, "ends in .conflist", func(o *Options) { o.Name = "foo.txt" }},
		{"a name of single plugins", primaryName, "ends in .conflist", func(o *Options) { o.Name = "05-latch.conf" }},
		{"a name behind the primary's", primaryName, "sorts before 99-latch.conflist", func(o *Options) { o.Name = "99-latch.conflist" }},
		{"a name of others", primaryName, "not latch's own", func(o *Options) { o.Name = primaryName }},
		{"a primary that is not there, but others", primaryName, "where there is " + primaryName, func(o *Options) { o.Primary = "10-aws.conf" }},
		{"in place, a primary that is not there", primaryName, "where there is " + primaryName, func(o *Options) { o.Primary, o.InPlace = "10-aws.conf", true }},
		{"in place, a single plugin", "10-ptp.conf", "cannot be edited in place", func(o *Options) { o.InPlace = true }},
		{"no such folder", primaryName, "--cni-conf-dir", func(o *Options) { o.ConfDir += "/x" }},
		{"no such folder of plugins", primaryName, "--cni-bin-dir", func(o *Options) { o.BinDir += "/x" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGround(t)
			g.write(test.file, conflist(vpc))
			if err := g.installs(test.tweak); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want %q, have %v", test.want, err)
			}
			if have := g.names(); have != test.file || g.read(test.file) != conflist(vpc) {
				t.Errorf("it left %s", have)
			}
		})
	}
}

// A primary may be installed after Latch; until then ADD is refused, and the reason does not say that it was there.
func TestPrimaryIsInstalledLater(t *testing.T) {
	for _, test := range []struct {
		name  string
		other string
		tweak func(o *Options)
	}{
		{"there is none", "", nil},
		{"named, and there is none", "", func(o *Options) { o.Primary = primaryName }},
		{"named, and there is loopback", loopback, func(o *Options) { o.Primary = primaryName }},
		{"named, and it was said", conflist(portmap), func(o *Options) { o.Primary, o.PrimaryLater = primaryName, true }},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGround(t)
			if test.other != "" {
				g.write("99-other.conflist", test.other)
			}
			if err := g.installs(test.tweak); err != nil {
				t.Fatal(err)
			}
			if have := g.read(DefaultName); !strings.Contains(have, `"disabled":"there is no configuration of `) {
				t.Error(have)
			}
			g.write(primaryName, conflist(vpc))
			if err := g.installs(test.tweak); err != nil {
				t.Fatal(err)
			}
			if have := g.read(DefaultName); latched([]byte(have)) != nil || !strings.Contains(have, vpc) {
				t.Error(have)
			}
		})
	}
}

// Our own configuration under another name is not taken for a primary, and goes once the new one is there.
func TestOwnFileGetsAnotherName(t *testing.T) {
	g := newGround(t)
	g.write(primaryName, conflist(vpc))
	for _, name := range []string{DefaultName, "04-a.conflist", "06-b.conflist", DefaultName} {
		if err := g.installs(func(o *Options) { o.Name = name }); err != nil {
			t.Fatal(err)
		}
		if have, want := g.names(), name+" "+primaryName; have != want {
			t.Errorf("have %s, want %s", have, want)
		}
		if have := g.read(name); strings.Count(have, `"latch"`) != 1 || !strings.Contains(have, vpc) {
			t.Error(have)
		}
	}

	// A latchd that is told a name that no runtime would get to leaves in force what is.
	g.cfg.Name = "99-c.conflist"
	if err := NewFollower(g.cfg).Look(); err == nil || !strings.Contains(err.Error(), "sorts before") {
		t.Error(err)
	}
	if have := g.read(DefaultName); latched([]byte(have)) != nil || !strings.Contains(have, vpc) {
		t.Error(have)
	}

	// Without the primary its content comes along, for DEL; a copy is no primary either.
	g.remove("99-c.conflist")
	g.remove(primaryName)
	g.cfg.Name = "04-a.conflist"
	if err := NewFollower(g.cfg).Look(); !errors.Is(err, errNoPrimary) {
		t.Error(err)
	}
	g.write("20-copy.conflist", g.read("04-a.conflist"))
	if err := NewFollower(g.cfg).Look(); !errors.Is(err, errNoPrimary) {
		t.Error(err)
	}
	if have := g.names(); have != "04-a.conflist 20-copy.conflist" || !strings.Contains(g.read("04-a.conflist"), vpc) {
		t.Error(have, g.read("04-a.conflist"))
	}
}

// A mistyped folder is no node on which nothing is left.
func TestUninstallFromNoFolder(t *testing.T) {
	g := newGround(t)
	o := Options{Config: g.cfg, BinDir: g.t.TempDir(), Bpffs: g.t.TempDir()}
	o.StateDir = g.t.TempDir()
	for _, tweak := range []func(o *Options){func(o *Options) { o.ConfDir += "/x" }, func(o *Options) { o.BinDir += "/x" }} {
		mistyped := o
		tweak(&mistyped)
		if err := Uninstall(t.Context(), mistyped); err == nil || !strings.Contains(err.Error(), "/x does not exist") {
			t.Error(err)
		}
	}
}

// Ours goes whatever its name is, and of a primary's file our entry only, whatever we are told.
func TestRemoveConfigFindsOurs(t *testing.T) {
	g := newGround(t)
	g.write(primaryName, conflist(vpc, bare))
	if err := g.installs(func(o *Options) { o.Name = "04-a.conflist" }); err != nil {
		t.Fatal(err)
	}
	g.cfg.Name = primaryName
	if err := g.cfg.removeConfig(); err != nil {
		t.Fatal(err)
	}
	if have := g.names(); have != primaryName || g.read(primaryName) != conflist(vpc) {
		t.Error(have, g.read(primaryName))
	}
}

// Earlier builds did not note in our own configuration that it is ours.
func TestOwnFileOfAnEarlierBuild(t *testing.T) {
	const name = "03-latch.conflist"
	mark := `,"latch-cni.dev/own-file":"` + name + `"`
	for _, test := range []struct{ name, before, primary string }{
		{"of the primary as it is", conflist(vpc), conflist(vpc)},
		{"of the primary as it was", conflist(portmap), conflist(vpc)},
		{"that had no primary yet", "", conflist(vpc)},
		{"that has no primary yet", "", ""},
		{"whose primary is gone", conflist(vpc), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			early := func() *ground {
				g := newGround(t)
				g.cfg.Name = name
				for _, primary := range []string{test.before, test.primary} {
					_ = os.Remove(g.path(primaryName))
					if primary != "" {
						g.write(primaryName, primary)
					}
					if primary == test.before || primary == "" {
						if err := g.installs(nil); err != nil {
							t.Fatal(err)
						}
					}
				}
				unmarked := strings.Replace(g.read(name), mark, "", 1)
				if unmarked == g.read(name) {
					t.Fatal(unmarked)
				}
				g.write(name, unmarked)
				return g
			}

			g := early()
			if err := g.installs(nil); err != nil {
				t.Error(err)
			}
			if have := g.read(name); !strings.Contains(have, mark) {
				t.Error(have)
			}

			g = early()
			if err := g.cfg.removeConfig(); err != nil {
				t.Error(err)
			}
			want := ""
			if test.primary != "" {
				want = primaryName
			}
			if have := g.names(); have != want {
				t.Errorf("left %s", have)
			}
		})
	}
}

// A primary's file that was edited in place is not ours, be it named as ours and be there others.
func TestEditedInPlaceIsNotOurs(t *testing.T) {
	g := newGround(t)
	g.write("99-other.conflist", strings.Replace(conflist(vpc), `"name":"`, `"name":"other-`, 1))
	g.write(primaryName, conflist(vpc, bare))
	g.cfg.Name = primaryName
	if err := g.installs(nil); err == nil || !strings.Contains(err.Error(), "not latch's own") {
		t.Error(err)
	}
	if err := g.cfg.removeConfig(); err != nil {
		t.Error(err)
	}
	if have := g.read(primaryName); have != conflist(vpc) {
		t.Error(have)
	}
}
