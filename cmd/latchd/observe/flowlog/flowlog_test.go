package flowlog

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/cmd/latchd/observe/reference"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

const ruleID = 0x4711

var (
	idDB     = identity.Of("shop", map[string]string{"app": "db"})
	dbPolicy = policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}
	at       = time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
)

// newLog is a log to a file in a folder of its own, over the records of one pod, db.
func newLog(t *testing.T, o Options) *Log {
	t.Helper()
	dir := t.TempDir()
	store := state.New(filepath.Join(dir, "state"))
	o.Node, o.File = "n1", filepath.Join(dir, "log", "flow.log")
	if o.Format == "" {
		o.Format = JSON
	}
	if o.Size == 0 {
		o.Size = 1
	}
	l, err := Open(o, store, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.out.Close() })
	l.offset = time.Duration(at.UnixNano())
	return l
}

func publish(t *testing.T, s state.Store) {
	t.Helper()
	err := errors.Join(
		s.WriteAttachment(state.Attachment{ContainerID: "c1", IfName: "eth0", PodNamespace: "shop", PodName: "db", Identifier: idDB,
			Interfaces: []state.Interface{{Ifindex: 12, Name: "eni1", PodID: 7}}}),
		s.WriteIdentifier(state.IdentifierRecord{Identifier: idDB, Namespace: "shop", Running: state.SlotRef{Slot: 5, Sources: []policy.Source{
			{ID: ruleID, Policy: dbPolicy, Tier: policy.TierNetworkPolicy, Isolation: true}}}}))
	if err != nil {
		t.Fatal(err)
	}
}

func event(src, dst string, proto uint8, sport, dport uint16) *bpf.Event {
	return &bpf.Event{Pod: 7, Ifindex: 12, Slot: 5, Generation: 42, Result: ruleID, Len: 60, Proto: proto,
		Src: netip.MustParseAddr(src).As16(), Dst: netip.MustParseAddr(dst).As16(), Sport: bpf.NetPort(sport), Dport: bpf.NetPort(dport)}
}

func with(e *bpf.Event, change func(*bpf.Event)) *bpf.Event {
	change(e)
	return e
}

var examples = []struct {
	name string
	e    *bpf.Event
}{
	{"denied", event("10.0.0.1", "10.0.2.0", 6, 40000, 5432)},
	{"denied, IPv6", event("fd00::1", "fd00::2", 17, 40000, 53)},
	{"allowed", with(event("10.0.2.0", "10.0.0.10", 6, 40001, 443), func(e *bpf.Event) { e.Allow, e.Dir, e.Result = 1, 1, bpf.ResAllow })},
	{"malformed", with(event("10.0.0.1", "10.0.2.0", 6, 0, 0), func(e *bpf.Event) { e.Reason, e.Result = uint8(bpf.ReasonMalformed), 0 })},
	{"another protocol", with(event("10.0.0.1", "10.0.2.0", 47, 1, 2), func(*bpf.Event) {})},
}

func written(t *testing.T, l *Log) string {
	t.Helper()
	l.flush()
	raw, err := os.ReadFile(l.opts.File)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(raw)
}

func logged(t *testing.T, f Format) string {
	t.Helper()
	l := newLog(t, Options{Format: f, Allows: 1})
	publish(t, l.names.store)
	for _, x := range examples {
		line, whole := l.names.resolve(x.e)
		if !whole {
			l.names.refresh()
			line, _ = l.names.resolve(x.e)
		}
		l.write(x.e, line)
	}
	return written(t, l)
}

func TestReference(t *testing.T) {
	for _, f := range []Format{JSON, AWS} {
		reference.Check(t, "flow-log.md", string(f), "```\n"+logged(t, f)+"```\n")
	}
	var fields []string
	for f := range reflect.TypeFor[line]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	reference.Mentions(t, "flow-log.md", "Fields", fields...)
}

func TestReasonsAreExplained(t *testing.T) {
	var names []string
	for _, r := range bpf.Reasons() {
		names = append(names, r.String())
	}
	reference.Mentions(t, "reasons.md", "Reasons", names...)
}

// An address that ends in .0 keeps its last byte, and labels are those of each family.
func TestAWSLines(t *testing.T) {
	var got []string
	for text := range strings.Lines(logged(t, AWS)) {
		var l struct{ Level, TS, Caller, Msg string }
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if l.TS != "2026-03-04T05:06:07.089Z" || l.Caller == "" {
			t.Errorf("line %+v", l)
		}
		got = append(got, l.Level+" "+l.Msg)
	}
	want := []string{
		"info Flow Info: Src IP: 10.0.0.1 Src Port: 40000 Dest IP: 10.0.2.0 Dest Port: 5432 Proto TCP Verdict DENY Direction ingress, Tier NETWORK_POLICY",
		"info Flow Info: Src IP: fd00::1 Src Port: 40000 Dest IP: fd00::2 Dest Port: 53 Proto: UDP Verdict: DENY Direction: ingress Tier: NETWORK_POLICY",
		"debug Flow Info: Src IP: 10.0.2.0 Src Port: 40001 Dest IP: 10.0.0.10 Dest Port: 443 Proto TCP Verdict ACCEPT Direction egress, Tier DEFAULT",
		"info Flow Info: Src IP: 10.0.0.1 Src Port: 0 Dest IP: 10.0.2.0 Dest Port: 0 Proto TCP Verdict DENY Direction ingress, Tier ERROR",
		"info Flow Info: Src IP: 10.0.0.1 Src Port: 0 Dest IP: 10.0.2.0 Dest Port: 0 Proto UNKNOWN Verdict DENY Direction ingress, Tier NETWORK_POLICY",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// An event that comes before its records is written when they are there.
func TestEventsWaitForTheirRecords(t *testing.T) {
	l := newLog(t, Options{})
	l.take(sample(event("10.0.0.1", "10.0.0.2", 6, 1, 2)))
	if got := written(t, l); got != "" {
		t.Fatalf("written at once: %s", got)
	}
	publish(t, l.names.store)
	l.names.at = time.Time{}
	l.settle()
	if got := written(t, l); !strings.Contains(got, `"pod":"db"`) || !strings.Contains(got, `"name":"db"`) {
		t.Errorf("got %s", got)
	}
	// One whose records never come is written all the same.
	l.take(sample(with(event("10.0.0.1", "10.0.0.2", 6, 1, 3), func(e *bpf.Event) { e.Pod = 99 })))
	l.names.at = time.Time{}
	l.settle()
	if got := written(t, l); !strings.Contains(got, `"dstPort":3`) {
		t.Errorf("got %s", got)
	}
}

// What a rule id stood for is known for as long as events of it may come.
func TestRulesOfYesterday(t *testing.T) {
	l := newLog(t, Options{})
	publish(t, l.names.store)
	l.names.refresh()
	if err := l.names.store.WriteIdentifier(state.IdentifierRecord{Identifier: idDB, Namespace: "shop"}); err != nil {
		t.Fatal(err)
	}
	l.names.at = time.Time{}
	l.names.refresh()
	if got, whole := l.names.resolve(event("10.0.0.1", "10.0.0.2", 6, 1, 2)); !whole || got.Policy == nil {
		t.Errorf("%+v", got)
	}
}

func sample(e *bpf.Event) []byte {
	return append([]byte(nil), (*[80]byte)(bytesOf(e))[:]...)
}

// One pod that floods gets half of the rate, and all together no more than the rate.
func TestRate(t *testing.T) {
	l := newLimiter(100)
	now := at
	count := func(pod uint32, n int) (passed int) {
		for range n {
			if l.allow(pod, now) {
				passed++
			}
		}
		return passed
	}
	if got := count(1, 1000); got != 50 {
		t.Errorf("one pod: %d lines, want 50", got)
	}
	if got := count(2, 1000); got != 50 {
		t.Errorf("another: %d lines, want 50", got)
	}
	if got := count(3, 10); got != 0 {
		t.Errorf("more than the rate: %d lines", got)
	}
	now = now.Add(100 * time.Millisecond)
	if got := count(3, 1000); got != 10 {
		t.Errorf("after a tenth of a second: %d lines, want 10", got)
	}
	if l := newLimiter(0); !l.allow(1, now) {
		t.Error("0 is no limit")
	}
}

func TestSampling(t *testing.T) {
	l := newLog(t, Options{Allows: 10})
	publish(t, l.names.store)
	for range 100 {
		l.take(sample(examples[2].e))
		l.take(sample(examples[0].e))
	}
	written(t, l)
	if got := l.Stats(); got != (Stats{Denies: 100, Allows: 10, Sampled: 90}) {
		t.Errorf("got %+v", got)
	}
}

// However much is written, files are bounded, whole, and no line is torn.
func TestRotation(t *testing.T) {
	l := newLog(t, Options{Files: 2})
	publish(t, l.names.store)
	for range 20_000 {
		l.take(sample(examples[0].e))
	}
	written(t, l)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(l.opts.File), "*"))
	if err != nil {
		t.Fatal(err)
	}
	testWhole(t, files)
	deadline := time.Now().Add(5 * time.Second) // old files go in the background
	for len(files) > 3 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		files, _ = filepath.Glob(filepath.Join(filepath.Dir(l.opts.File), "*"))
	}
	if len(files) != 3 {
		t.Errorf("%d files", len(files))
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.Size() > 1<<20 {
			t.Errorf("%s has %d bytes", f, info.Size())
		}
	}
}

func testWhole(t *testing.T, files []string) {
	t.Helper()
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // rotated away
		}
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.Lines(string(raw)) {
			if !json.Valid([]byte(text)) {
				t.Fatalf("%s: %q", f, text)
			}
		}
	}
}

// A log that cannot be written loses lines, counts them, and says so in itself when it can again.
func TestLossesAreCounted(t *testing.T) {
	l := newLog(t, Options{Rate: 2})
	publish(t, l.names.store)
	out := l.out
	l.out = full{}
	for range 5 {
		l.take(sample(examples[0].e))
	}
	l.flush()
	if got := l.Stats(); got.Failed+got.Limited != 5 || got.Failed == 0 {
		t.Errorf("got %+v", got)
	}
	l.out = out
	l.noticeAt = time.Time{}
	l.notice()
	var n notice
	if err := json.Unmarshal([]byte(written(t, l)), &n); err != nil || n.Suppressed["write"]+n.Suppressed["rate"] != 5 {
		t.Errorf("%+v, %v", n, err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }
func (full) Close() error              { return nil }

func TestOptions(t *testing.T) {
	good := Options{Format: JSON, Size: 1}
	for name, o := range map[string]Options{
		"unknown format": {Format: "xml", Size: 1},
		"relative path":  {Format: JSON, Size: 1, File: "flow.log"},
		"no size":        {Format: JSON},
	} {
		if o.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, file := range []string{"", Stdout, "/var/log/flow.log"} {
		good.File = file
		if err := good.Check(); err != nil {
			t.Error(err)
		}
	}
	open := func(file string) error {
		good.File = file
		l, err := Open(good, state.Store{}, nil, slog.New(slog.DiscardHandler))
		if err == nil {
			err = l.out.Close()
		}
		return err
	}
	if open("/proc/no/flow.log") == nil {
		t.Error("a file that cannot be made is no error")
	}
	// Its folder is made, a path of several is mistyped.
	dir := t.TempDir()
	for _, file := range []string{dir + "/latch/flow.log", dir + "/latch/again.log"} {
		if err := open(file); err != nil {
			t.Error(err)
		}
	}
	if err := open(dir + "/lgo/latch/flow.log"); err == nil || !strings.Contains(err.Error(), dir+"/lgo does not exist") {
		t.Errorf("two folders that are not there: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("made %v, %v", left, err)
	}
}

func BenchmarkFlood(b *testing.B) {
	l := &Log{limiter: newLimiter(1000), out: full{}, opts: Options{Format: JSON}, log: slog.New(slog.DiscardHandler)}
	l.names.log = l.log
	s := sample(examples[3].e)
	for b.Loop() {
		l.take(s)
	}
}

func bytesOf(e *bpf.Event) unsafe.Pointer { return unsafe.Pointer(e) }
