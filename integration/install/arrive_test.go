package install

import (
	"os"
	"strings"
	"testing"
)

// A runtime takes a node for not ready while STATUS fails, and its pods out of their Services. Latch that
// comes to a node with running pods must not do that to it while latchd starts; on a node without pods, and on
// one that boots, STATUS fails until policy is known. ADD is refused in any case.
func TestStatusDuringTheFirstInstallation(t *testing.T) {
	g := newGround(t, options{})
	g.ownFolders()
	g.writePrimary(strings.Replace(g.primary(), `"1.0.0"`, `"1.1.0"`, 1))
	refused := func(when string) {
		t.Helper()
		if err := g.status(); err == nil || !strings.Contains(err.Error(), "latchd has not") {
			t.Errorf("%s: STATUS says %v", when, err)
		}
	}
	g.install()
	refused("a node without pods")
	_, err := g.latchd("uninstall")
	g.check(err)

	g.ownFolders()
	g.openPod("a")
	g.install()
	g.check(g.status())
	if err := g.tryAdd(newSandbox(t, "b")); err == nil {
		t.Error("ADD was not refused before policy was known")
	}
	g.install() // the init container runs again
	g.check(g.status())

	g.check(os.RemoveAll(g.node.StateDir)) // as at boot
	g.ownFolders()
	refused("a node that boots")
	g.install()
	refused("a node that boots, after the init container")
	g.start()
	g.check(g.status())
}
