package enforce

import (
	"path/filepath"
	"sync"
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
	writable = sync.OnceFunc(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	g.t.Cleanup(writable)
	if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		g.t.Fatal(err)
	}
	return writable
}

// fails requires that a request which has nowhere to write its records to says so.
func (g *ground) fails(folder string, req Request) {
	g.t.Helper()
	defer g.readOnly(folder)()
	g.do(func() error {
		if _, err := g.tryApply(req); err == nil {
			g.t.Errorf("%s cannot be written, and nobody says so", folder)
		}
		return nil
	})
}

// parted makes a pod that runs, open, and one that was created since, under a policy that holds for new ones only.
func (g *ground) parted() {
	g.t.Helper()
	host, _ := testenv.Veth(g.t, g.node, "lt1", g.pod, "eth1")
	running := attachment(state.Interface{Ifindex: host.Attrs().Index, Name: "lt1"})
	running.ContainerID = "c0"
	g.apply(Request{Identifier: idA, Create: openRules(), Bind: []state.Attachment{running}})
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Running: openRules()})
	g.apply(Request{Identifier: idA, Bind: []state.Attachment{attachment(g.iface)}})
	g.wantVerdicts("created", true, false)
}

// While new and running pods have rules of their own, a pod stays with the rules for new ones when the records cannot
// be written.
func TestCreatedPodStaysWithItsRulesWithoutRecords(t *testing.T) {
	for _, folder := range []string{"identifiers", "attachments"} {
		t.Run(folder, func(t *testing.T) {
			g := newGround(t)
			g.parted()
			next := Request{Identifier: idA, Create: allowPorts(openPort, openPort+1), Running: openRules(), Verify: true}
			for range 3 {
				g.fails(folder, next)
				g.wantVerdicts("not written", true, false)
			}
			if slots := g.e.objects.slotsOf(idA.Bytes()); len(slots) > 3 {
				t.Errorf("slots %v are taken", slots)
			}
			g.apply(next)
			g.wantVerdicts("written", true, false)
		})
	}
}

// A record of an early build does not say which rules its pod has.
func TestCreatedPodStaysWithItsRulesAfterAnEarlyBuild(t *testing.T) {
	g := newGround(t)
	g.parted()
	a, err := g.e.store.ReadAttachment("c1", "eth0")
	if err != nil {
		t.Fatal(err)
	}
	a.Rules = ""
	if err := g.e.store.WriteAttachment(a); err != nil {
		t.Fatal(err)
	}
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort, openPort+1), Running: openRules(), Verify: true})
	g.wantVerdicts("next build", true, false)
}

// A pod that runs keeps the rules of those that do when its record could be written and the identifier's not, or the
// other way round: the slot that it names is that for new pods by then.
func TestRunningPodStaysWithItsRulesWithoutRecords(t *testing.T) {
	for name, failed := range map[string]func(g *ground){
		"its slot is another one": func(g *ground) {
			g.fails("identifiers", Request{Identifier: idA, Create: manyPeers(300)})
			g.fails("attachments", Request{Identifier: idA, Create: allowPorts(shutPort), Running: manyPeers(301)})
		},
		"moved to the slot for new ones": func(g *ground) {
			g.apply(Request{Identifier: idA, Create: allowPeers("198.19.0.1/32"), Running: openRules()})
			g.fails("identifiers", Request{Identifier: idA, Create: allowPeers()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			g.apply(Request{Identifier: idA, Create: openRules(), Bind: []state.Attachment{attachment(g.iface)}})
			failed(g)
			g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Running: openRules()})
			g.wantVerdicts("runs", true, true)
		})
	}
}
