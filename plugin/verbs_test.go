package plugin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/plugin"
	"github.com/latch-cni/latch/shared/identity"
)

// The life of an attachment, in every version of the specification. Each verb is run twice where that
// must make no difference.
func TestVerbs(t *testing.T) {
	for _, version := range plugin.Versions().SupportedVersions() {
		t.Run(version, func(t *testing.T) {
			n := newNode(t)
			s := n.sandbox("web")
			n.publish(s)
			conf := n.netConf(version, s, nil)
			stdout := n.mustCall("ADD", s, conf)
			var got, want any
			if err := json.Unmarshal([]byte(stdout), &got); err != nil {
				t.Fatalf("stdout %q: %v", stdout, err)
			}
			prev, _ := json.Marshal(s.result(version))
			_ = json.Unmarshal(prev, &want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("result is not prevResult (-want +got):\n%s", diff)
			}
			a, err := n.store().ReadAttachment(s.container, "eth0")
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Interfaces) != 1 || a.Interfaces[0].Name != s.hostVeth || a.Interfaces[0].Addr4 != s.addr {
				t.Errorf("interfaces %+v, want %s with %s", a.Interfaces, s.hostVeth, s.addr)
			}
			if atLeast(version, "0.4.0") {
				n.mustCall("CHECK", s, conf)
			}
			if atLeast(version, "1.1.0") {
				keep := n.netConf(version, nil, map[string]any{"cni.dev/valid-attachments": []any{
					map[string]any{"containerID": s.container, "ifname": "eth0"}}})
				n.mustCall("GC", nil, keep)
				n.mustCall("CHECK", s, conf)
			}
			n.mustCall("DEL", s, conf)
			n.wantNoAttachments()
			n.mustCall("DEL", s, n.netConf(version, nil, nil))
			if atLeast(version, "0.4.0") {
				_, cniErr := n.call("CHECK", n.env(s, nil), conf)
				n.wantRefused(s, cniErr, 3, "not under enforcement")
			}
			n.mustCall("ADD", s, conf)
			n.mustCall("DEL", s, conf)
		})
	}
}

func atLeast(version, other string) bool { return version >= other } // one digit each

// The binary that is shipped, which the other tests stand in for.
func TestBuiltBinary(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(n.bin, "latch")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", path, "github.com/latch-cni/latch/cmd/latch").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	stdout, cniErr := n.call("VERSION", nil, nil)
	if cniErr != nil {
		t.Fatal(cniErr)
	}
	var got struct{ SupportedVersions []string }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}, got.SupportedVersions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	s := n.sandbox("web")
	n.publish(s)
	conf := n.netConf("1.0.0", s, nil)
	n.mustCall("ADD", s, conf)
	n.mustCall("CHECK", s, conf)
	n.mustCall("DEL", s, conf)
	n.wantNoAttachments()
}

func TestDelNeedsNothing(t *testing.T) {
	cases := []struct {
		name string
		keys map[string]any
		env  map[string]string
	}{
		{"unknown container", nil, nil},
		{"no netns", nil, map[string]string{"CNI_NETNS": ""}},
		{"netns that is gone", nil, map[string]string{"CNI_NETNS": "/run/netns/no-such-sandbox"}},
		{"no arguments", nil, map[string]string{"CNI_ARGS": ""}},
		{"broken arguments", nil, map[string]string{"CNI_ARGS": "K8S_POD_NAME"}},
		{"no prevResult", map[string]any{"prevResult": nil}, nil},
		{"broken prevResult", map[string]any{"prevResult": ""}, nil},
		{"mistakes in the configuration", map[string]any{"enforcingMode": "lax", "policyWait": 2, "lockTimeout": "x"}, nil},
		{"log that cannot be written", map[string]any{"logFile": "/proc/latch.log"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			s := n.sandbox("web")
			if _, cniErr := n.call("DEL", n.env(s, c.env), n.netConf("1.0.0", s, c.keys)); cniErr != nil {
				t.Errorf("DEL: %v", cniErr)
			}
			if _, err := os.Stat(filepath.Join(n.bpffs, "latch")); err == nil {
				t.Error("DEL made pins")
			}
			n.publish(s)
			n.mustCall("ADD", s, n.netConf("1.0.0", s, nil))
			if _, cniErr := n.call("DEL", n.env(s, c.env), n.netConf("1.0.0", s, c.keys)); cniErr != nil {
				t.Errorf("DEL after ADD: %v", cniErr)
			}
			n.wantNoAttachments()
		})
	}
}

// A record that makes no sense does not keep a pod from ending, and another attachment's is not taken for it.
func TestDelOfDamagedRecord(t *testing.T) {
	for _, content := range []string{"", "{", "{}", "null", "another's"} {
		t.Run(content, func(t *testing.T) {
			n := newNode(t)
			s, other := n.sandbox("web"), n.sandbox("db")
			for _, s := range []*sandbox{s, other} {
				n.publish(s)
				n.mustCall("ADD", s, n.netConf("1.0.0", s, nil))
			}
			path := func(s *sandbox) string {
				return filepath.Join(n.state, "attachments", identity.AttachmentKey(s.container, "eth0")+".json")
			}
			bad := []byte(content)
			if content == "another's" {
				bad, _ = os.ReadFile(path(other))
			}
			if err := os.WriteFile(path(s), bad, 0o600); err != nil {
				t.Fatal(err)
			}
			n.mustCall("DEL", s, n.netConf("1.0.0", s, nil))
			n.mustCall("CHECK", other, n.netConf("1.0.0", other, nil))
			n.mustCall("DEL", other, n.netConf("1.0.0", other, nil))
			n.wantNoAttachments()
		})
	}
}

// Pins that are gone are not made again to remove from them.
func TestDelWithoutPins(t *testing.T) {
	n := newNode(t)
	s := n.sandbox("web")
	n.publish(s)
	n.mustCall("ADD", s, n.netConf("1.0.0", s, nil))
	pinned := filepath.Join(n.bpffs, "latch")
	if err := os.RemoveAll(pinned); err != nil {
		t.Fatal(err)
	}
	n.mustCall("DEL", s, n.netConf("1.0.0", s, nil))
	n.wantNoAttachments()
	if _, err := os.Stat(pinned); err == nil {
		t.Error("DEL made pins")
	}
}

// A late DEL of an old sandbox is not about the new one of the same pod name.
func TestLateDelLeavesTheSuccessorAlone(t *testing.T) {
	n := newNode(t)
	before, after := n.sandbox("web-0"), n.sandbox("web-0")
	n.publish(before)
	n.mustCall("ADD", before, n.netConf("1.0.0", before, nil))
	n.publish(after)
	n.mustCall("ADD", after, n.netConf("1.0.0", after, nil))
	n.mustCall("DEL", before, n.netConf("1.0.0", before, nil))
	n.mustCall("CHECK", after, n.netConf("1.0.0", after, nil))
	n.mustCall("DEL", after, n.netConf("1.0.0", after, nil))
	n.wantNoAttachments()
}

func TestGCRemovesWhatIsNotListed(t *testing.T) {
	n := newNode(t)
	stale, valid, other := n.sandbox("a"), n.sandbox("b"), n.sandbox("c")
	for _, s := range []*sandbox{stale, valid} {
		n.publish(s)
		n.mustCall("ADD", s, n.netConf("1.1.0", s, nil))
	}
	n.publish(other)
	n.mustCall("ADD", other, n.netConf("1.1.0", other, map[string]any{"name": "storage"}))

	_, cniErr := n.call("GC", n.env(nil, nil), n.netConf("1.1.0", nil, nil))
	if cniErr == nil || cniErr.Code != 7 {
		t.Errorf("GC without a list: %v, want code 7", cniErr)
	}
	n.mustCall("GC", nil, n.netConf("1.1.0", nil, map[string]any{"cni.dev/valid-attachments": []any{
		map[string]any{"containerID": valid.container, "ifname": "eth0"}}}))
	n.mustCall("CHECK", valid, n.netConf("1.1.0", valid, nil))
	n.mustCall("CHECK", other, n.netConf("1.1.0", other, map[string]any{"name": "storage"}))
	if left, err := n.store().ListAttachments(); err != nil || len(left) != 2 {
		t.Errorf("%d attachments left (%v), want 2", len(left), err)
	}
}

func TestStatus(t *testing.T) {
	n := newNode(t)
	conf := n.netConf("1.1.0", nil, nil)
	_, cniErr := n.call("STATUS", n.env(nil, nil), conf)
	n.wantRefused(nil, cniErr, 50, "latchd has not reported")

	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(n.state, "status.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"ready":false,"message":"waiting for caches"}`)
	_, cniErr = n.call("STATUS", n.env(nil, nil), conf)
	n.wantRefused(nil, cniErr, 50, "has not read policy yet", "waiting for caches")
	arrived := func(since time.Duration) string {
		return fmt.Sprintf(`{"ready":false,"message":"just installed","arrived":%q}`, time.Now().Add(-since).Format(time.RFC3339))
	}
	write(arrived(6 * time.Minute))
	_, cniErr = n.call("STATUS", n.env(nil, nil), conf)
	n.wantRefused(nil, cniErr, 50, "has not read policy yet", "just installed")
	for _, later := range []string{
		arrived(time.Minute),
		`{"ready":true,"known":true}`,
		`{"ready":false,"known":true,"degraded":true,"message":"some identifiers are not up to date"}`,
		`{"ready":false,"known":true,"stopped":true,"message":"latchd has stopped"}`,
		`{"ready":false,"known":true,"message":"waiting for the API server"}`,
	} {
		write(later)
		n.mustCall("STATUS", nil, conf)
	}
	if stdout := n.mustCall("STATUS", nil, conf); stdout != "" {
		t.Errorf("stdout %q, want nothing", stdout)
	}
	_, cniErr = n.call("STATUS", n.env(nil, nil), n.netConf("1.1.0", nil, map[string]any{"bpffs": "/proc/latch"}))
	n.wantRefused(nil, cniErr, 50, "/proc/latch")
}

func TestNothingOnStdoutButTheResult(t *testing.T) {
	n := newNode(t)
	s := n.sandbox("web")
	n.publish(s)
	conf := n.netConf("1.0.0", s, map[string]any{"logFile": "/proc/latch.log", "logLevel": "debug"})
	stdout := n.mustCall("ADD", s, conf)
	dec := json.NewDecoder(strings.NewReader(stdout))
	var result any
	if err := dec.Decode(&result); err != nil || dec.More() {
		t.Errorf("stdout %q is not one JSON value: %v", stdout, err)
	}
	if stdout := n.mustCall("DEL", s, conf); stdout != "" {
		t.Errorf("stdout of DEL %q, want nothing", stdout)
	}
}
