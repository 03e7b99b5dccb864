package statuspage

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// newNode is a node by its records; nothing of it is in the kernel. Its flow log has one denied packet.
func newNode(t *testing.T) Options {
	t.Helper()
	o := Options{Bpffs: t.TempDir(), StateDir: t.TempDir(), Version: "1.2.3"}
	release, err := lock.Folder(o.StateDir) // it is latchd that serves the page
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	s := state.New(o.StateDir)
	id := identity.Of("shop", map[string]string{"app": "db"})
	flows := filepath.Join(t.TempDir(), "flows.log")
	const line = `{"time":"2026-03-04T05:06:07.089Z","namespace":"shop","pod":"db","direction":"ingress","src":"10.0.0.1","srcPort":40000,"dst":"10.0.2.0","dstPort":5432,` +
		`"protocol":"TCP","verdict":"deny","reason":"policy","tier":"NetworkPolicy","policy":{"kind":"NetworkPolicy","namespace":"shop","name":"db"},"isolation":true,"bytes":60}` + "\n"
	for _, err := range []error{
		os.WriteFile(flows, []byte(line), 0o600),
		s.WriteSettings(state.NodeSettings{FlowLog: flows}),
		s.WriteStatus(state.Status{Ready: true, Node: "n1", Mode: "strict", UpdatedAt: time.Now(), Problems: []state.Problem{{Object: "shop/<script>", Message: "bad & worse"}}}),
		s.WriteIdentifier(state.IdentifierRecord{Identifier: id, Namespace: "shop", Policies: []policy.PolicyRef{{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}}}),
		s.WriteAttachment(state.Attachment{ContainerID: "c1", IfName: "eth0", PodNamespace: "shop", PodName: "db", Identifier: id, Phase: state.PhaseEnforced,
			Interfaces: []state.Interface{{Ifindex: 1 << 20, Name: "eni1", PodID: 7}}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func get(t *testing.T, url, host string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(raw)
}

func TestPage(t *testing.T) {
	s := httptest.NewServer(Handler(newNode(t)))
	defer s.Close()
	code, header, body := get(t, s.URL, "")
	if code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Fatalf("%d, %v", code, header)
	}
	for _, want := range []string{"Latch on n1", "strict mode", "shop/db", "eni1", "not-in-force", "1 not in force", "10.0.0.1:40000", "shop/db (isolates)",
		"shop/&lt;script&gt;", "bad &amp; worse", "version 1.2.3"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	for _, never := range []string{"<script", "src=", "href=", "url(", "@import", "<form"} {
		if strings.Contains(body, never) {
			t.Errorf("%q: the page has to be one document that only shows", never)
		}
	}
}

func TestPageOfABareNode(t *testing.T) {
	s := httptest.NewServer(Handler(Options{Bpffs: t.TempDir(), StateDir: t.TempDir()}))
	defer s.Close()
	if code, _, body := get(t, s.URL, ""); code != http.StatusOK || !strings.Contains(body, "--flow-log=") || !strings.Contains(body, "has never run here") {
		t.Errorf("%d:\n%s", code, body)
	}
}

func TestOnlyToRead(t *testing.T) {
	s := httptest.NewServer(Handler(newNode(t)))
	defer s.Close()
	resp, err := http.Post(s.URL, "text/plain", strings.NewReader("x"))
	if err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", resp, err)
	}
	for host, want := range map[string]int{"localhost:8164": 200, "127.0.0.1": 200, "[::1]:8164": 200, "evil.example": 403, "evil.example:80": 403} {
		if code, _, _ := get(t, s.URL, host); code != want {
			t.Errorf("by the name %s: %d, want %d", host, code, want)
		}
	}
	if code, _, _ := get(t, s.URL+"/records", ""); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
}

// An address without a host is loopback.
func TestListen(t *testing.T) {
	for addr, loopback := range map[string]bool{":0": true, "127.0.0.1:0": true, "[::1]:0": true, "0.0.0.0:0": false} {
		l, err := Listen(addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if got := l.Addr().(*net.TCPAddr).IP.IsLoopback(); got != loopback {
			t.Errorf("%s listens on %s", addr, l.Addr())
		}
		_ = l.Close()
	}
	if _, err := Listen("8164"); err == nil {
		t.Error("a port alone is an address")
	}
}
