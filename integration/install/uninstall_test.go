package install

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/latch-cni/latch/shared/attach"
)

// Uninstalling leaves the node as it was found: its CNI configuration byte for byte, no plugin, no pin,
// no record, nothing on the interfaces of pods that go on (R14.4).
func TestUninstallLeavesNothing(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		t.Run(fmt.Sprintf("in place %v", inPlace), func(t *testing.T) {
			var flags []string
			if inPlace {
				flags = []string{"--in-place"}
			}
			g := newGround(t, options{latchd: flags})
			g.writePrimary(g.primary())
			g.check(os.WriteFile(g.criRuntime.conflist("20-other.conflist"), []byte(g.primary(`{"type":"latch"}`)), 0o600))
			before := g.found()
			g.install(flags...)
			g.start()
			a, b := g.pod("a"), g.pod("b")
			g.send(a, "filtered")
			g.wantShut(g.openPod("open"), "filtered")

			if _, err := g.latchd("uninstall"); err == nil || !strings.Contains(err.Error(), "is running on this node: stop it first") {
				t.Errorf("uninstall beside latchd: %v", err)
			}
			g.check(g.node.StopLatchd())
			for range 2 { // it may be called again
				_, err := g.latchd("uninstall")
				g.check(err)
			}
			delete(before, filepath.Join(g.confDir, "20-other.conflist"))
			after := g.found()
			if left := after[filepath.Join(g.confDir, "20-other.conflist")]; strings.Contains(left, `"latch"`) || !strings.Contains(left, "ptp") {
				t.Errorf("an entry was left that names a plugin which is gone: %s", left)
			}
			delete(after, filepath.Join(g.confDir, "20-other.conflist"))
			if diff := cmp.Diff(before, after); diff != "" {
				t.Error(diff)
			}
			g.wantNothingAttached()
			g.wantOpen(a, "a is open")
			g.wantOpen(b, "b is open")
			g.wantOpen(g.pod("c"), "c is open")
		})
	}
}

// found is what lies on the node's disk, in bpffs and in /run, by path; links and binaries by name only.
func (g *ground) found() map[string]string {
	g.t.Helper()
	all := map[string]string{}
	for _, root := range []string{g.confDir, g.binDir, g.node.Bpffs, g.node.StateDir} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == g.node.StateDir || strings.HasSuffix(path, ".debug") {
				return nil
			}
			all[path] = d.Type().String()
			if filepath.Dir(path) == g.confDir {
				b, err := os.ReadFile(path)
				all[path] = string(b)
				return err
			}
			return nil
		})
		g.check(err)
	}
	return all
}

func (g *ground) wantNothingAttached() {
	g.t.Helper()
	g.check(g.Node.Do(func() error {
		links, err := netlinksafe.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			for _, side := range attach.Sides {
				what, err := attach.Occupied(l.Attrs().Index, side)
				if err != nil || len(what) > 0 {
					g.t.Errorf("on %s of %s: %v, %v", side, l.Attrs().Name, what, err)
				}
			}
			qdiscs, err := netlink.QdiscList(l)
			for _, q := range qdiscs {
				if q.Type() == "clsact" {
					err = fmt.Errorf("clsact is left on %s", l.Attrs().Name)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
}
