package state

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

var (
	now     = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	id      = identity.Of("t1", map[string]string{"app": "a"})
	addrs   = cmpopts.EquateComparable(netip.Addr{})
	podA    = PodRecord{Namespace: "t1", Name: "a.b-1", UID: "u1", Identifier: id, Labels: map[string]string{"app": "a"}, PublishedAt: now}
	attachA = Attachment{
		ContainerID: "c1", IfName: "eth0", Netns: "/run/netns/x", PodNamespace: "t1", PodName: "a.b-1", PodUID: "u1",
		Identifier: id, Phase: PhaseEnforced, Slot: 7, CreatedAt: now,
		Interfaces: []Interface{
			{Ifindex: 12, Name: "eni1", PodID: 3, Addr4: netip.MustParseAddr("10.0.1.11"), Mode: "clsact"},
			{Ifindex: 13, Name: "eni2", PodID: 4, Addr6: netip.MustParseAddr("fd00:10:1::11"), Mode: "tcx"},
		},
	}
	identA = IdentifierRecord{
		Identifier: id, Namespace: "t1", Labels: map[string]string{"app": "a"},
		Create:   SlotRef{Slot: 7, Hash: "00ff", Generation: 9, Since: now},
		Running:  SlotRef{Slot: 8, Sources: []policy.Source{{ID: 0xabcdef, Policy: policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "t1", Name: "p"}, Action: policy.ActionAccept}}},
		Policies: []policy.PolicyRef{{Kind: "NetworkPolicy", Namespace: "t1", Name: "p"}},
		Pending:  []policy.PolicyRef{{Kind: "ClusterNetworkPolicy", Name: "q"}}, UpdatedAt: now,
	}
)

// kind is one kind of record, for tests that hold for all of them.
type kind struct {
	name   string
	path   func(Store) string
	write  func(Store) error
	read   func(Store) (any, error)
	remove func(Store) error
	list   func(Store) (int, error)
	want   any
}

var kinds = []kind{
	{
		"pod", func(s Store) string { return s.path(dirPods, podA.key()) },
		func(s Store) error { return s.WritePod(podA) },
		func(s Store) (any, error) { return s.ReadPod("t1", "a.b-1") },
		func(s Store) error { return s.DeletePod("t1", "a.b-1") },
		func(s Store) (int, error) { l, err := s.ListPods(); return len(l), err },
		podA,
	},
	{
		"attachment", func(s Store) string { return s.path(dirAttachments, attachA.key()) },
		func(s Store) error { return s.WriteAttachment(attachA) },
		func(s Store) (any, error) { return s.ReadAttachment("c1", "eth0") },
		func(s Store) error { return s.DeleteAttachment("c1", "eth0") },
		func(s Store) (int, error) { l, err := s.ListAttachments(); return len(l), err },
		attachA,
	},
	{
		"identifier", func(s Store) string { return s.path(dirIdentifiers, identA.key()) },
		func(s Store) error { return s.WriteIdentifier(identA) },
		func(s Store) (any, error) { return s.ReadIdentifier(id) },
		func(s Store) error { return s.DeleteIdentifier(id) },
		func(s Store) (int, error) { l, err := s.ListIdentifiers(); return len(l), err },
		identA,
	},
}

func forEachKind(t *testing.T, do func(*testing.T, kind, Store)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { do(t, k, New(filepath.Join(t.TempDir(), "run"))) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLifeOfARecord(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind, s Store) {
		if _, err := k.read(s); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("absent: %v", err)
		}
		if n, err := k.list(s); n != 0 || err != nil {
			t.Errorf("list of nothing: %d, %v", n, err)
		}
		must(t, k.remove(s))
		for range 2 {
			must(t, k.write(s))
			got, err := k.read(s)
			must(t, err)
			if diff := cmp.Diff(k.want, got, addrs); diff != "" {
				t.Error(diff)
			}
			if n, err := k.list(s); n != 1 || err != nil {
				t.Errorf("list: %d, %v", n, err)
			}
		}
		must(t, k.remove(s))
		must(t, k.remove(s))
		if _, err := k.read(s); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("deleted: %v", err)
		}
		must(t, s.RemoveFolders())
		must(t, s.RemoveFolders())
		if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("folder is left: %v", err)
		}
	})
}

// A newer build may have added fields.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind, s Store) {
		must(t, k.write(s))
		b, err := os.ReadFile(k.path(s))
		must(t, err)
		b = []byte(strings.Replace(string(b), "{", `{"fromTheFuture": {"x": [1]},`, 1))
		must(t, os.WriteFile(k.path(s), b, 0o600))
		got, err := k.read(s)
		must(t, err)
		if diff := cmp.Diff(k.want, got, addrs); diff != "" {
			t.Error(diff)
		}
	})
}

// What cannot be read is named, and does not hide the rest.
func TestBadRecordsAreNamed(t *testing.T) {
	bad := map[string]string{
		"cut off":              `{"namespace": "t1", "na`,
		"empty file":           ``,
		"another type":         `{"identifier": 5}`,
		"identifier is a path": `{"identifier": "../../x"}`,
		"of another object":    `{"namespace": "other", "containerID": "other", "identifier": "` + strings.Repeat("0", 32) + `"}`,
	}
	forEachKind(t, func(t *testing.T, k kind, s Store) {
		must(t, k.write(s))
		dir := filepath.Dir(k.path(s))
		must(t, os.WriteFile(filepath.Join(dir, tempPrefix+"1"), []byte("{"), 0o600))
		must(t, os.WriteFile(filepath.Join(dir, "note.txt"), []byte("{"), 0o600))
		for name, content := range bad {
			path := filepath.Join(dir, strings.Repeat("f", 32)+suffix)
			must(t, os.WriteFile(path, []byte(content), 0o600))
			n, err := k.list(s)
			if n != 1 {
				t.Errorf("%s: %d good records in the list", name, n)
			}
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: error %v does not name %s", name, err, path)
			}
		}
		bad["of nothing"] = "{}"
		for name, content := range bad {
			must(t, os.WriteFile(k.path(s), []byte(content), 0o600))
			if _, err := k.read(s); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), k.path(s)) {
				t.Errorf("%s: error %v is not about %s", name, err, k.path(s))
			}
		}
	})
}

// Readers take no lock: they see a whole record while writers replace it.
func TestReadersNeverSeeHalfARecord(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind, s Store) {
		must(t, k.write(s))
		stop := make(chan struct{})
		var writers sync.WaitGroup
		for range 3 {
			writers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := k.write(s); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for range 500 {
			if _, err := k.read(s); err != nil {
				t.Error(err)
			}
			if n, err := k.list(s); n != 1 || err != nil {
				t.Errorf("list: %d, %v", n, err)
			}
		}
		close(stop)
		writers.Wait()
		left, err := os.ReadDir(filepath.Dir(k.path(s)))
		if err != nil || len(left) != 1 {
			t.Errorf("left over: %v, %v", left, err)
		}
	})
}

func TestSweepTemp(t *testing.T) {
	s := New(t.TempDir())
	must(t, s.WritePod(podA))
	left := filepath.Join(s.dir, dirPods, tempPrefix+"123")
	must(t, os.WriteFile(left, nil, 0o600))
	must(t, s.SweepTemp(time.Hour))
	if _, err := os.Stat(left); err != nil {
		t.Errorf("young file was removed: %v", err)
	}
	must(t, s.SweepTemp(0))
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("old file: %v", err)
	}
	if _, err := s.ReadPod(podA.Namespace, podA.Name); err != nil {
		t.Error(err)
	}
}

func TestIdentifiersOfOtherFormAreRefused(t *testing.T) {
	s := New(t.TempDir())
	for _, bad := range []identity.Identifier{"", "../../etc/x", "ABC"} {
		if err := s.WriteIdentifier(IdentifierRecord{Identifier: bad}); err == nil {
			t.Errorf("%q was written", bad)
		}
		if _, err := s.ReadIdentifier(bad); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q was looked for: %v", bad, err)
		}
		if _, _, err := s.ReadSlots(bad); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Errorf("the slots of %q were looked for: %v", bad, err)
		}
		if err := s.DeleteIdentifier(bad); err == nil {
			t.Errorf("%q was deleted", bad)
		}
	}
}

// The slots of an identifier are those of its record.
func TestSlotsOfAnIdentifier(t *testing.T) {
	s := New(t.TempDir())
	id := identity.Of("shop", map[string]string{"app": "web"})
	if _, _, err := s.ReadSlots(id); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no record: %v", err)
	}
	want := IdentifierRecord{Identifier: id, Create: SlotRef{Slot: 4, Hash: "aa", Generation: 7}, Running: SlotRef{Slot: 3, Hash: "bb", Generation: 6}}
	must(t, s.WriteIdentifier(want))
	create, running, err := s.ReadSlots(id)
	if err != nil || !reflect.DeepEqual(create, want.Create) || !reflect.DeepEqual(running, want.Running) {
		t.Errorf("got %+v and %+v, %v", create, running, err)
	}
	must(t, os.WriteFile(s.path(dirIdentifiers, string(id)), []byte("{"), 0o600))
	if _, _, err := s.ReadSlots(id); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a record that makes no sense: %v", err)
	}
}

func TestSettingsAndStatus(t *testing.T) {
	s := New(filepath.Join(t.TempDir(), "run"))
	if got, err := s.ReadSettings(); err != nil || got != (NodeSettings{}) {
		t.Errorf("no settings: %v, %v", got, err)
	}
	want := NodeSettings{EnforcingMode: "strict", PolicyWait: "2s", AttachMode: "tcx", Bpffs: "/sys/fs/bpf"}
	must(t, s.WriteSettings(want))
	if got, err := s.ReadSettings(); err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	must(t, os.WriteFile(filepath.Join(s.Dir(), "node.json"), []byte("{"), 0o600))
	if _, err := s.ReadSettings(); err == nil || !strings.Contains(err.Error(), "node.json") {
		t.Errorf("bad settings: %v", err)
	}

	if _, err := s.ReadStatus(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no status: %v", err)
	}
	status := Status{Ready: true, Node: "n1", Problems: []Problem{{"PolicyEndpoint t1/p", "spec.ingress[0].cidr", "not a prefix"}}, UpdatedAt: now}
	must(t, s.WriteStatus(status))
	got, err := s.ReadStatus()
	must(t, err)
	if diff := cmp.Diff(status, got); diff != "" {
		t.Error(diff)
	}
	for range 2 {
		must(t, s.DeleteSettings())
		must(t, s.DeleteStatus())
	}
}
