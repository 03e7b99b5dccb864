package enforce

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// A writer can be killed in the middle of writing a record, and between the two files of an intent.
func TestSweepRemovesFilesOfKilledWriters(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: openRules(), Bind: []state.Attachment{attachment(g.iface)}})
	if err := g.e.Store().AddMember(idB, "killed", "eth0"); err != nil {
		t.Fatal(err)
	}
	old := []string{
		filepath.Join(g.cfg.StateDir, "members", string(idB), identity.AttachmentKey("killed", "eth0")),
		filepath.Join(g.cfg.StateDir, "attachments", ".tmp-1"),
	}
	fresh := filepath.Join(g.cfg.StateDir, "attachments", ".tmp-2")
	for _, path := range []string{old[1], fresh} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ago := time.Now().Add(-2 * tempAge)
	kept := filepath.Join(g.cfg.StateDir, "members", string(idA), identity.AttachmentKey("c1", "eth0"))
	for _, path := range append(old, kept) {
		if err := os.Chtimes(path, ago, ago); err != nil {
			t.Fatal(err)
		}
	}
	g.do(func() error { _, err := g.e.Sweep(ctx); return err })
	for _, path := range append(old, filepath.Dir(old[0])) {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	for _, path := range []string{fresh, kept} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestDiscardEndsWithARecordThatCannotBeRead(t *testing.T) {
	cfg := Config{Bpffs: testenv.BPFFS(t), StateDir: testenv.StateDir(t), LockTimeout: lockTimeout}
	dir, err := state.New(cfg.StateDir).MakeAttachmentDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, identity.AttachmentKey("c1", "eth0")+".json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if done, err := Discard(ctx, cfg, "c1", "eth0"); !done || err != nil {
		t.Errorf("done %v, %v", done, err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the record is left")
	}
}
