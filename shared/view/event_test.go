package view_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/view"
)

// Every example of the flow log's reference, which is made from the code that writes it, reads back as
// what it says, whole.
func TestEventsOfBothFormats(t *testing.T) {
	raw, err := os.ReadFile("../../docs/reference/flow-log.md")
	if err != nil {
		t.Fatal(err)
	}
	owner := func(a netip.Addr) (string, string) {
		if s := a.String(); s == "10.0.2.0" || s == "fd00::2" {
			return "shop", "db"
		}
		return "", ""
	}
	seen := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		format := "json"
		if strings.HasPrefix(line, `{"level"`) {
			format = "aws"
		} else if !strings.HasPrefix(line, `{"time"`) {
			continue
		}
		e, err := view.ParseEvent([]byte(line), owner)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if format == "json" {
			back, _ := json.Marshal(e)
			if diff := cmp.Diff(strings.TrimSpace(line), string(back)); diff != "" {
				t.Errorf("a field is lost: %s", diff)
			}
		}
		seen[format] = append(seen[format], strings.Join([]string{e.Verdict, e.Direction, e.Key(), e.Src.String(), e.Dst.String(), e.Tier}, " "))
	}
	want := []string{
		"deny ingress shop/db 10.0.0.1 10.0.2.0 NetworkPolicy", "deny ingress shop/db fd00::1 fd00::2 NetworkPolicy",
		"allow egress shop/db 10.0.2.0 10.0.0.10 Default", "deny ingress shop/db 10.0.0.1 10.0.2.0 ", "deny ingress shop/db 10.0.0.1 10.0.2.0 NetworkPolicy",
	}
	for _, format := range []string{"json", "aws"} {
		if diff := cmp.Diff(want, seen[format]); diff != "" {
			t.Errorf("%s: %s", format, diff)
		}
	}
}

func TestWhatIsNoEvent(t *testing.T) {
	for _, line := range []string{"", "hello", "{}", `{"level":"INFO","msg":"starting"}`, `{"msg":"Flow Info: what"}`, "[1]"} {
		if _, err := view.ParseEvent([]byte(line), nil); !errors.Is(err, view.ErrNoEvent) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestEventFilter(t *testing.T) {
	now := time.Now()
	e := view.Event{Time: now, Namespace: "shop", Pod: "db", Direction: "ingress", Verdict: "deny", Policy: &view.Policy{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}}
	for _, test := range []struct {
		name string
		f    view.EventFilter
		want bool
	}{
		{"nothing asked", view.EventFilter{}, true},
		{"its namespace", view.EventFilter{Namespace: "shop"}, true},
		{"another pod", view.EventFilter{Namespace: "shop", Pod: "web"}, false},
		{"another direction", view.EventFilter{Direction: "egress"}, false},
		{"another verdict", view.EventFilter{Verdict: "allow"}, false},
		{"its policy", view.EventFilter{Policy: "shop/db"}, true},
		{"its policy's name", view.EventFilter{Policy: "db"}, true},
		{"another policy", view.EventFilter{Policy: "shop/web"}, false},
		{"too old", view.EventFilter{Since: now.Add(time.Second)}, false},
	} {
		if got := test.f.Match(e); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// A file is followed through rotation, truncation and half lines, and no line is lost or told twice.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.log")
	f, err := view.Follow(path) // not there yet
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	var got []string
	more := func() {
		t.Helper()
		if err := f.More(func(line []byte) error { got = append(got, string(line)); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	add := func(text string) {
		t.Helper()
		out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = out.WriteString(text)
			err = errors.Join(err, out.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	more()
	add("1\n2\nhal")
	more()
	add("f\n3\n")
	more()
	add("4\n")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	more() // between rename and creation
	add("5\n")
	more()
	more()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	more()
	add("6\n")
	more()
	if diff := cmp.Diff([]string{"1", "2", "half", "3", "4", "5", "6"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for _, test := range []struct {
		name, content string
		want          string
	}{
		{"empty", "", ""},
		{"short", "1\n2\n", "1 2"},
		{"long", strings.Repeat(strings.Repeat("x", 99)+"\n", 20000) + "1\n2\n3\n", "1 2 3"},
	} {
		if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := view.Tail(path, 3)
		if err != nil || string(bytes.Join(got, []byte(" "))) != test.want {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
	}
}
