package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

const flowLines = `{"time":"2026-03-04T05:06:07.089Z","node":"n1","namespace":"shop","pod":"db","direction":"ingress","src":"10.0.0.1","srcPort":40000,"dst":"10.0.2.0","dstPort":5432,"protocol":"TCP","verdict":"deny","reason":"policy","tier":"NetworkPolicy","policy":{"kind":"NetworkPolicy","namespace":"shop","name":"db"},"isolation":true,"bytes":60}
{"time":"2026-03-04T05:06:08Z","level":"INFO","msg":"a line that is none"}
{"time":"2026-03-04T05:06:08.089Z","node":"n1","namespace":"shop","pod":"web","direction":"egress","src":"10.0.2.1","srcPort":40001,"dst":"10.0.0.10","dstPort":443,"protocol":"TCP","verdict":"allow","reason":"policy","tier":"Default","bytes":60}
{"time":"2026-03-04T05:06:10Z","node":"n1","suppressed":{"rate":9000}}
`

// recorded is a node whose latchd said where it writes its flow log; it has no kernel objects.
func recorded(t *testing.T, flowLog string) (dirs []string) {
	t.Helper()
	dir := t.TempDir()
	if err := state.New(dir).WriteSettings(state.NodeSettings{FlowLog: flowLog, Bpffs: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	return []string{"--state-dir", dir}
}

func TestEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.log")
	if err := os.WriteFile(path, []byte(flowLines), 0o600); err != nil {
		t.Fatal(err)
	}
	dirs := recorded(t, path)
	for _, test := range []struct {
		name  string
		args  []string
		lines int // with the heading
		want  string
	}{
		{"all", nil, 3, "10.0.0.1:40000 -> 10.0.2.0:5432"},
		{"of a pod", []string{"shop/db"}, 2, "shop/db (isolates)"},
		{"of a pod by flag", []string{"--pod", "shop/web"}, 2, "default of the mode"},
		{"of a namespace", []string{"--pod", "shop/"}, 3, ""},
		{"denied", []string{"--verdict", "deny"}, 2, "5432"},
		{"of a policy", []string{"--policy", "shop/db"}, 2, "5432"},
		{"of a direction", []string{"--direction", "egress"}, 2, "443"},
		{"the last", []string{"-n", "2"}, 2, "443"}, // what was left out counts, and is no row
		{"none that new", []string{"--since", "1m"}, 0, ""},
	} {
		code, out, errOut := call(append(append([]string{"events"}, test.args...), dirs...)...)
		if code != 0 || strings.Count(out, "\n") != test.lines || !strings.Contains(out, test.want) {
			t.Errorf("%s: exit code %d\n%s%s", test.name, code, out, errOut)
		}
		if test.name == "all" && !strings.Contains(errOut, "9000 lines were left out: rate") {
			t.Errorf("what is left out is not told: %s", errOut)
		}
	}
	// A pod that nobody knows is not one of which nothing was denied.
	for _, test := range []struct {
		args []string
		code int
	}{
		{[]string{"shop/nope"}, exitUnhealthy}, {[]string{"--pod", "shop/nope"}, exitUnhealthy}, {[]string{"--pod", "nope/"}, 0},
		{[]string{"shop/nope", "--file", path}, 0},
	} {
		code, out, errOut := call(append(append([]string{"events"}, test.args...), dirs...)...)
		if code != test.code || out != "" || strings.Contains(errOut, "shop/nope") != (code != 0) {
			t.Errorf("%v: exit code %d\n%s%s", test.args, code, out, errOut)
		}
	}
	_, out, _ := call(append([]string{"events", "-o", "json", "shop/db"}, dirs...)...)
	var e map[string]any
	if err := json.Unmarshal([]byte(out), &e); err != nil || e["dstPort"] != 5432.0 {
		t.Errorf("%v in %s", err, out)
	}
}

// What latchd put aside is read, too: the last event before a rotation is not lost to who asks after it.
func TestEventsOfRotatedFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "flows.log")
	log := &lumberjack.Logger{Filename: path}
	for i := range 3 {
		if i > 0 {
			time.Sleep(2 * time.Millisecond) // the time is in the name
			if err := log.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
		line := fmt.Sprintf(`{"time":"2026-03-04T05:06:0%d.089Z","namespace":"shop","pod":"db-%d","direction":"ingress","verdict":"deny"}`+"\n", i, i)
		if _, err := log.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(log.Close(), os.WriteFile(filepath.Join(dir, "flows-of-others.log"), []byte(flowLines), 0o600)); err != nil {
		t.Fatal(err)
	}
	aside, err := filepath.Glob(filepath.Join(dir, "flows-2*.log"))
	if err != nil || len(aside) != 2 {
		t.Fatalf("put aside: %v, %v", aside, err)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "db-0 db-1 db-2"},
		{[]string{"-n", "1"}, "db-2"},
		{[]string{"-n", "2"}, "db-1 db-2"},
		{[]string{"-n", "9"}, "db-0 db-1 db-2"},
		{[]string{"--pod", "shop/db-0"}, "db-0"},
		{[]string{"--since", "1m"}, ""},
	} {
		_, out, errOut := call(append(append([]string{"events"}, test.args...), recorded(t, path)...)...)
		if got := strings.Join(regexp.MustCompile(`db-\d`).FindAllString(out, -1), " "); got != test.want {
			t.Errorf("%v: got %q, want %q\n%s%s", test.args, got, test.want, out, errOut)
		}
	}
}

func TestEventsFromStandardInput(t *testing.T) {
	var out, errOut bytes.Buffer
	code := run(append([]string{"events", "--file", "-", "-o", "yaml"}, recorded(t, "stdout")...), strings.NewReader(flowLines), &out, &errOut)
	if code != 0 || strings.Count(out.String(), "---\n") != 2 {
		t.Errorf("exit code %d\n%s%s", code, &out, &errOut)
	}
}

func TestEventsWithoutALog(t *testing.T) {
	for flowLog, want := range map[string]string{"": "--flow-log=", "stdout": "--file -"} {
		code, out, errOut := call(append([]string{"events", "-f"}, recorded(t, flowLog)...)...)
		if code != exitUnhealthy || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("flow log %q: exit code %d, %s%s", flowLog, code, out, errOut)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestEventsFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flows.log")
	args := append([]string{"events", "-f", "--verdict", "deny"}, recorded(t, path)...)
	ctx, stop := context.WithCancel(context.Background())
	var out lockedBuffer
	code := make(chan int)
	go func() { code <- runContext(ctx, args, strings.NewReader(""), &out, &out) }()
	for round := 1; round <= 2; round++ { // the file comes later, and comes again
		if err := os.WriteFile(path+".new", []byte(flowLines), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, 5*time.Second, func() error {
			if got := strings.Count(out.String(), "shop/db (isolates)"); got != round {
				return &os.PathError{Op: "follow", Path: out.String(), Err: os.ErrNotExist}
			}
			return nil
		})
	}
	stop()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
}
