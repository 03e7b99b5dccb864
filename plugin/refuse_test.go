package plugin_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

func TestAddRefuses(t *testing.T) {
	cases := []struct {
		name string
		keys map[string]any
		env  map[string]string
		code uint
		want []string
	}{
		{"no prevResult", map[string]any{"prevResult": nil}, nil, 7, []string{"no prevResult", "chained"}},
		{"no pod in CNI_ARGS", nil, map[string]string{"CNI_ARGS": ""}, 4, []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME"}},
		{"disabled", map[string]any{"disabled": "10-x.conflist is gone"}, nil, 11, []string{"starts no pods", "10-x.conflist is gone"}},
		{"unknown value", map[string]any{"enforcingMode": "lax"}, nil, 7, []string{`enforcingMode: "lax" is not one of standard, strict`}},
		{"unsupported version", map[string]any{"cniVersion": "0.2.0"}, nil, 1, []string{"incompatible"}},
		{"sandbox is gone", nil, map[string]string{"CNI_NETNS": "/run/netns/no-such-sandbox"}, 8, []string{"no-such-sandbox"}},
		{"bpffs cannot be mounted", map[string]any{"bpffs": "/proc/latch"}, nil, 999, []string{"/proc/latch"}},
		{"state folder cannot be made", map[string]any{"stateDir": "/proc/latch", "enforcingMode": "strict"}, nil, 999, []string{"/proc/latch"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			s := n.sandbox("web")
			n.publish(s)
			_, cniErr := n.call("ADD", n.env(s, c.env), n.netConf("1.0.0", s, c.keys))
			n.wantRefused(s, cniErr, c.code, c.want...)
		})
	}
}

func TestAddRefusesSandboxWithoutVeth(t *testing.T) {
	n := newNode(t)
	s := n.sandbox("web")
	n.publish(s)
	s.netns = newNode(t).host // an empty one
	_, cniErr := n.call("ADD", n.env(s, nil), n.netConf("1.0.0", s, nil))
	n.wantRefused(s, cniErr, 999, "no veth in the sandbox")
}

func TestAddNamesTheHolderOfTheLock(t *testing.T) {
	n := newNode(t)
	s := n.sandbox("web")
	id := n.publish(s)
	e := n.open()
	defer e.Close()
	held, err := e.Lock(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	_, cniErr := n.call("ADD", n.env(s, nil), n.netConf("1.0.0", s, map[string]any{"lockTimeout": "100ms"}))
	n.wantRefused(s, cniErr, 11, string(id), "held by", "pid")
}

func TestAddOfUnknownPod(t *testing.T) {
	cases := []struct {
		name string
		keys map[string]any
		want string // default of the attachment; "" = refused
	}{
		{"standard mode asks to try again", nil, ""},
		{"standard mode, default by configuration", map[string]any{"unknownPods": "default"}, "allow"},
		{"strict mode denies", map[string]any{"enforcingMode": "strict"}, "deny"},
		{"strict mode denies whatever unknownPods says", map[string]any{"enforcingMode": "strict", "unknownPods": "default"}, "deny"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			s := n.sandbox("web")
			stranger := *s
			stranger.uid = "uid-of-an-earlier-pod"
			n.publish(&stranger) // of the same name
			conf := n.netConf("1.0.0", s, c.keys)
			start := time.Now()
			_, cniErr := n.call("ADD", n.env(s, nil), conf)
			if waited := time.Since(start); waited < 100*time.Millisecond {
				t.Errorf("waited %s, want policyWait", waited)
			}
			if c.want == "" {
				n.wantRefused(s, cniErr, 11, "shop/web", "nothing is known", "latchd")
				n.wantTold(s, 11, "nothing is known")
				return
			}
			if cniErr != nil {
				t.Fatal(cniErr)
			}
			a, err := n.store().ReadAttachment(s.container, "eth0")
			if err != nil {
				t.Fatal(err)
			}
			if a.Default != c.want {
				t.Errorf("default %q, want %q", a.Default, c.want)
			}
			n.mustCall("CHECK", s, conf)
			n.mustCall("DEL", s, conf)
			n.wantNoAttachments()
		})
	}
}

// The record is there, the rules are not: never open, whatever unknownPods says.
func TestAddOfPodWhoseIdentifierIsNotPrepared(t *testing.T) {
	cases := []struct {
		name string
		keys map[string]any
		deny bool
	}{
		{"standard mode", map[string]any{"unknownPods": "default"}, false},
		{"strict mode", map[string]any{"enforcingMode": "strict"}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			s := n.sandbox("web")
			labels := map[string]string{"app": "web"}
			n.record(s, identity.Of("shop", labels), labels)
			_, cniErr := n.call("ADD", n.env(s, nil), n.netConf("1.0.0", s, c.keys))
			if files, err := filepath.Glob(filepath.Join(n.state, "locks", string(identity.OfName("shop", "web"))+"*")); err != nil || len(files) > 0 {
				t.Errorf("files of the lock of the pod's name: %v, %v", files, err)
			}
			if !c.deny {
				n.wantRefused(s, cniErr, 11, "not in the kernel")
				return
			}
			if cniErr != nil {
				t.Fatal(cniErr)
			}
			if a, err := n.store().ReadAttachment(s.container, "eth0"); err != nil || a.Default != "deny" {
				t.Errorf("attachment %+v, %v, want default deny", a, err)
			}
		})
	}
}

// The mode of the rules is latchd's: an entry that asks for more than these give does not seem to get it.
func TestAddIsNotStricterThanTheRules(t *testing.T) {
	for _, tt := range []struct {
		node, entry string
		refused     bool
	}{
		{"standard", "strict", true}, {"strict", "standard", false}, {"strict", "strict", false}, {"", "strict", false},
	} {
		t.Run(tt.node+" "+tt.entry, func(t *testing.T) {
			n := newNode(t)
			s := n.sandbox("web")
			n.publish(s)
			if tt.node != "" {
				if err := n.store().WriteSettings(state.NodeSettings{EnforcingMode: tt.node}); err != nil {
					t.Fatal(err)
				}
			}
			conf := n.netConf("1.0.0", s, map[string]any{"enforcingMode": tt.entry})
			_, cniErr := n.call("ADD", n.env(s, nil), conf)
			if tt.refused {
				n.wantRefused(s, cniErr, 7, "shop/web", "set both alike")
				return
			}
			if cniErr != nil {
				t.Fatal(cniErr)
			}
			n.mustCall("DEL", s, conf)
		})
	}
}

func TestAddWaitsForTheRecord(t *testing.T) {
	n := newNode(t)
	s := n.sandbox("web")
	labels := map[string]string{"app": "web"}
	id := identity.Of("shop", labels)
	done := make(chan error, 1)
	go func() {
		_, cniErr, err := n.exec("ADD", n.env(s, nil), n.netConf("1.0.0", s, map[string]any{"policyWait": "30s"}))
		if err == nil && cniErr != nil {
			err = cniErr
		}
		done <- err
	}()
	time.Sleep(200 * time.Millisecond)
	n.record(s, id, labels)
	time.Sleep(100 * time.Millisecond)
	select {
	case err := <-done:
		t.Fatalf("ADD returned before the identifier was prepared: %v", err)
	default:
	}
	n.prepare(id, labels)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if a, err := n.store().ReadAttachment(s.container, "eth0"); err != nil || a.Identifier != id {
		t.Errorf("attachment %+v, %v, want identifier %s", a, err, id)
	}
}

// What the interfaces of a failed ADD are left with must not let packets through, but a sandbox that
// never started is also not to keep anything.
func TestFailedAddTakesBackWhatItApplied(t *testing.T) {
	n := newNode(t)
	s := n.sandbox("web")
	n.publish(s)
	conf := n.netConf("1.0.0", s, map[string]any{"attachMode": "tcx"})
	// The folder of links lies on another file system: a link cannot be pinned there, after pod_state is written.
	links := filepath.Join(n.bpffs, "latch", "v1", "link")
	if err := os.RemoveAll(links); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", n.mkdir(links), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(links, unix.MNT_DETACH) })
	_, cniErr := n.call("ADD", n.env(s, nil), conf)
	n.wantRefused(s, cniErr, 999, "attach")
}

func (n *node) mkdir(path string) string {
	n.t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		n.t.Fatal(err)
	}
	return path
}
