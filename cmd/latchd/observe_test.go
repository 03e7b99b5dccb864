package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/latch-cni/latch/cmd/latchd/observe/reference"
	"github.com/latch-cni/latch/shared/state"
)

// usage is what a command prints about its flags.
func usage(t *testing.T, args ...string) string {
	t.Helper()
	code, said := runWith(t, append(args, "--help")...)
	if code != 0 {
		t.Fatalf("%v: %d", args, code)
	}
	return said
}

// runWith runs latchd and returns the exit code, and what it said on standard error.
func runWith(t *testing.T, args ...string) (int, string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = f
	code := run(args)
	os.Stderr = stderr
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(raw)
}

var (
	flagLine    = regexp.MustCompile(`^ +(?:-\w, )?--([a-z0-9-]+)(?: (\S+))?   +(.*)$`)
	defaultText = regexp.MustCompile(` \(default (.*)\)$`)
)

// flagTable makes a table of it.
func flagTable(t *testing.T, args ...string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	for line := range strings.Lines(usage(t, args...)) {
		m := flagLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		text, value := m[3], ""
		if d := defaultText.FindStringSubmatch(text); d != nil {
			value = "`" + strings.Trim(d[1], `"`) + "`"
			text = strings.TrimSuffix(text, d[0])
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", m[1], value, text)
	}
	return b.String()
}

func TestSettingsReference(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	t.Setenv(modeEnv, "")
	reference.Check(t, "settings.md", "latchd", flagTable(t))
	reference.Check(t, "settings.md", "latchd install", flagTable(t, "install"))
	reference.Check(t, "settings.md", "latchd uninstall", flagTable(t, "uninstall"))
	keys := []string{"stateDir", "disabled"} // the others are in node.json, too
	for f := range reflect.TypeFor[state.NodeSettings]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "flowLog" || name == "confDir" {
			continue // what latchd was told: the plugin has no use for it
		}
		keys = append(keys, name)
	}
	reference.Mentions(t, "settings.md", "Keys of the plugin's entry", keys...)
}

// An address that is in use is an error before anything else happens, and names the flag.
func TestAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	for flag, o := range map[string]observeOptions{
		"--health-addr":  {healthAddr: addr},
		"--metrics-addr": {healthAddr: "127.0.0.1:0", metricsAddr: addr},
	} {
		_, err := newObservation(o, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), flag+" "+addr) || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestObserveFlags(t *testing.T) {
	base := []string{"--policy-dir", "/p", "--node-name", "n"}
	for _, c := range []struct {
		name        string
		args        []string
		deny, allow bool // events that the kernel is to make
		wantRefused string
	}{
		{"off is off", nil, false, false, ""},
		{"nothing to allow without a log", []string{"--flow-log-allows", "1"}, false, false, ""},
		{"denies", []string{"--flow-log", "stdout"}, true, false, ""},
		{"allows, too", []string{"--flow-log", "/f", "--flow-log-allows", "100"}, true, true, ""},
		{"unknown format", []string{"--flow-log-format", "xml"}, false, false, "--flow-log-format"},
		{"unknown detail", []string{"--metrics-detail", "pod"}, false, false, "--metrics-detail"},
		{"addresses off", []string{"--metrics-addr", "", "--health-addr", ""}, false, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := parseFlags(append(base, c.args...))
			if c.wantRefused != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantRefused) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || o.node.EventsDeny != c.deny || o.node.EventsAllow != c.allow {
				t.Errorf("%v, events deny %v allow %v", err, o.node.EventsDeny, o.node.EventsAllow)
			}
		})
	}
	ob, err := newObservation(observeOptions{}, slog.New(slog.DiscardHandler))
	if err != nil || ob.health != nil || ob.scrape != nil {
		t.Errorf("%+v, %v", ob, err)
	}
}
