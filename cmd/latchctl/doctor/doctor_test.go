package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/view"
)

const (
	primary = `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"}]}`
	chained = `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp"},{"type":"latch"}]}`
)

// withLatch is a chain whose entry of latch says more.
func withLatch(more string) string {
	return strings.Replace(chained, `"latch"`, `"latch",`+more, 1)
}

// folder makes a folder with files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestConfiguration(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		level Level
		want  string
	}{
		{"ours is first", map[string]string{"05-latch.conflist": chained, "10-ptp.conflist": primary}, OK, "ptp, latch"},
		{"there is none", nil, Fail, "no configuration"},
		{"ours is missing", map[string]string{"10-ptp.conflist": primary}, Fail, "does not have latch"},
		{"another sorts before ours", map[string]string{"05-latch.conflist": chained, "00-ptp.conflist": primary}, Fail, "sorts before 05-latch.conflist"},
		{"multus delegates to ours", map[string]string{"05-latch.conflist": chained, "00-multus.conf": `{"type":"multus"}`}, OK, "ptp, latch"},
		{"loopback is first", map[string]string{"05-latch.conflist": chained, "00-lo.conf": `{"type":"loopback"}`}, OK, "ptp, latch"},
		{"it is disabled", map[string]string{"05-latch.conflist": `{"plugins":[{"type":"latch","disabled":"no primary"}]}`}, Fail, "no primary"},
		{"a setting is misspelt", map[string]string{"05-latch.conflist": withLatch(`"enforcingMode":"strikt"`)}, Fail, `enforcingMode: "strikt" is not one of standard, strict`},
		{"a setting is of another type", map[string]string{"05-latch.conflist": withLatch(`"antiSpoof":"yes"`)}, Fail, "antiSpoof"},
		{"a key is misspelt", map[string]string{"05-latch.conflist": withLatch(`"antiSpoofing":true`)}, Warn, "antiSpoofing (antiSpoof?)"},
		{"a key is misspelt, which keeps no pod from starting", map[string]string{"05-latch.conflist": withLatch(`"antiSpoofing":true`)}, OK, "ptp, latch"},
		{"alone in a file", map[string]string{"05-latch.conf": `{"type":"latch"}`}, OK, "latch"},
		{"another is behind us", map[string]string{"05-latch.conflist": `{"plugins":[{"type":"ptp"},{"type":"latch"},{"type":"tuning"}]}`}, Warn, "latch before tuning"},
		{"one is no JSON", map[string]string{"01.conf": "{", "05-latch.conflist": chained}, Warn, "01.conf"},
	} {
		t.Run(test.name, func(t *testing.T) {
			x := &exam{Options: Options{ConfDir: folder(t, test.files)}}
			x.configuration()
			wantFinding(t, x.found, test.level, test.want)
		})
	}
}

func wantFinding(t *testing.T, found []Finding, level Level, message string) {
	t.Helper()
	for _, f := range found {
		if f.Level == level && strings.Contains(f.Message, message) {
			return
		}
	}
	t.Errorf("no %s %q in %+v", level, message, found)
}

func TestPlugin(t *testing.T) {
	x := &exam{Options: Options{BinDir: folder(t, map[string]string{"latch": ""})}}
	x.plugin()
	wantFinding(t, x.found, OK, "latch")
	x.BinDir = t.TempDir()
	x.plugin()
	wantFinding(t, x.found, Fail, "no such file")
}

// A node that has nothing is told what to do, and nothing of it is an error.
func TestBareNode(t *testing.T) {
	o := Options{Bpffs: t.TempDir(), StateDir: t.TempDir(), ConfDir: t.TempDir(), BinDir: t.TempDir(), Proc: "/proc", Sys: "/sys"}
	found := examine(t, o)
	for check, level := range map[string]Level{"bpffs": Fail, "pins": Fail, "conflist": Fail, "plugin": Fail, "latchd": Fail, "flow log": Note} {
		ok := false
		for _, f := range found {
			ok = ok || f.Check == check && f.Level == level && f.Fix != ""
		}
		if !ok {
			t.Errorf("no %s of %s with a fix", level, check)
		}
	}
	if !Unwell(found) {
		t.Error("the node is well")
	}
}

func examine(t *testing.T, o Options) []Finding {
	t.Helper()
	n, err := view.Open(o.Bpffs, o.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	return Examine(n, o)
}

// A problem with what is no object has a fix of its own.
func TestFixOfAConfiguration(t *testing.T) {
	o := Options{Bpffs: t.TempDir(), StateDir: t.TempDir()}
	said := state.Status{Ready: true, UpdatedAt: time.Now(), Problems: []state.Problem{{Object: state.ObjectConfiguration, Message: "none"}}}
	if err := state.New(o.StateDir).WriteStatus(said); err != nil {
		t.Fatal(err)
	}
	for _, f := range examine(t, o) {
		if strings.Contains(f.Message, "CNI configuration: none") && !strings.Contains(f.Fix, "primary CNI's configuration") {
			t.Errorf("%+v", f)
		}
	}
}

func TestLatchd(t *testing.T) {
	for _, test := range []struct {
		name  string
		said  state.Status
		level Level
		want  string
	}{
		{"gone without a word", state.Status{Ready: true, Node: "n1", UpdatedAt: time.Now()}, Fail, "does not run: it ended without a word"},
		{"stopped", state.Status{Stopped: true, Node: "n1", Message: "was stopped", UpdatedAt: time.Now()}, Fail, "does not run: was stopped"},
		{"ready", state.Status{Ready: true, Mode: "strict", UpdatedAt: time.Now()}, OK, "strict"},
		{"behind", state.Status{Message: "one pod to go", UpdatedAt: time.Now()}, Fail, "one pod to go"},
		{"down", state.Status{Ready: true, UpdatedAt: time.Now().Add(-time.Hour)}, Fail, "silent"},
		{"from the future", state.Status{Ready: true, UpdatedAt: time.Now().Add(time.Hour)}, Fail, "clock was set back"},
		{"with a problem", state.Status{Ready: true, UpdatedAt: time.Now(), Problems: []state.Problem{{Object: "shop/db", Message: "bad"}}}, Warn, "shop/db: bad"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := Options{Bpffs: t.TempDir(), StateDir: t.TempDir()}
			if err := state.New(o.StateDir).WriteStatus(test.said); err != nil {
				t.Fatal(err)
			}
			if test.said.Node == "" { // the others have gone
				release, err := lock.Folder(o.StateDir)
				if err != nil {
					t.Fatal(err)
				}
				defer release()
			}
			wantFinding(t, examine(t, o), test.level, test.want)
			if test.said.Node == "" {
				return
			}
			for _, f := range examine(t, o) {
				if f.Check == "latchd" && !strings.HasPrefix(f.Fix, "start it") {
					t.Errorf("advice for a latchd that does not run: %+v", f)
				}
			}
		})
	}
}
