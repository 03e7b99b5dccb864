package enforce

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// readOnly makes a folder of records one that nothing can be written to, until the function is called.
func (g *ground) readOnly(folder string) (writable func()) {
	g.t.Helper()
	path := filepath.Join(g.cfg.StateDir, folder)
	if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
		g.t.Fatal(err)
	}
	done := false
	writable = func() {
		if !done {
			done = true
			_ = unix.Unmount(path, unix.MNT_DETACH)
		}
	}
	g.t.Cleanup(writable)
	if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		g.t.Fatal(err)
	}
	return writable
}

// While new and running pods have rules of their own, a pod stays with the rules for new ones when the records cannot
// be written.
func TestCreatedPodStaysWithItsRulesWithoutRecords(t *testing.T) {
	for _, folder := range []string{"identifiers", "attachments"} {
		t.Run(folder, func(t *testing.T) {
			g := newGround(t)
			host, _ := testenv.Veth(t, g.node, "lt1", g.pod, "eth1")
			running := attachment(state.Interface{Ifindex: host.Attrs().Index, Name: "lt1"})
			running.ContainerID = "c0"
			g.apply(Request{Identifier: idA, Create: openRules(), Bind: []state.Attachment{running}})
			g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Running: openRules()})
			g.apply(Request{Identifier: idA, Bind: []state.Attachment{attachment(g.iface)}})
			g.wantVerdicts("created", true, false)
			next := Request{Identifier: idA, Create: allowPorts(openPort, openPort+1), Running: openRules(), Verify: true}
			writable := g.readOnly(folder)
			for range 3 {
				g.do(func() error {
					if _, err := g.tryApply(next); err == nil {
						t.Error("nothing can be written, and nobody says so")
					}
					return nil
				})
				g.wantVerdicts("not written", true, false)
			}
			if slots := g.e.objects.slotsOf(idA.Bytes()); len(slots) > 3 {
				t.Errorf("slots %v are taken", slots)
			}
			writable()
			g.apply(next)
			g.wantVerdicts("written", true, false)
		})
	}
}
