package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/ready"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/testenv"
)

// watched is a node whose latchd logs flows, with a pod "db" that takes nothing and a pod "web" that
// has no policy.
type watched struct {
	*harness.Node
	t       *testing.T
	web, db *harness.Sandbox
	log     string
}

const policyOfDB = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}
---
apiVersion: networking.k8s.aws/v1alpha1
kind: PolicyEndpoint
metadata: {name: closed-1, namespace: shop}
spec:
  policyRef: {name: closed, namespace: shop}
  podSelector: {matchLabels: {app: db}}
  podIsolation: [Ingress]
`

func newWatched(t *testing.T, args ...string) *watched {
	t.Helper()
	testenv.RequireRoot(t)
	dir := t.TempDir()
	w := &watched{t: t, log: filepath.Join(dir, "flow.log")}
	var err error
	w.Node, err = harness.NewNode(harness.Config{Binaries: ready.Build(t), Addrs: []netip.Addr{netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("fd00:18::1")},
		LatchdArgs: append([]string{"--flow-log", w.log}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	web := harness.Pod{Namespace: "shop", Name: "web", UID: "u1", Addrs: []netip.Addr{netip.MustParseAddr("198.18.1.11"), netip.MustParseAddr("fd00:18::11")}}
	db := harness.Pod{Namespace: "shop", Name: "db", UID: "u2", Addrs: []netip.Addr{netip.MustParseAddr("198.18.1.12"), netip.MustParseAddr("fd00:18::12")}}
	w.must(w.WriteManifest("policy.yaml", []byte(policyOfDB)))
	w.must(w.WriteManifest("pods.yaml", append(w.PodManifest(web, map[string]string{"app": "web"}), w.PodManifest(db, map[string]string{"app": "db"})...)))
	w.must(w.StartLatchd())
	w.must(w.WaitReady(t.Context(), 10*time.Second))
	w.web, err = w.AddPod(t.Context(), web)
	w.must(err)
	w.db, err = w.AddPod(t.Context(), db)
	w.must(err)
	return w
}

func (w *watched) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) eventually(patience time.Duration, check func() error) {
	w.t.Helper()
	w.must(harness.Eventually(w.t.Context(), patience, check))
}

// send sends datagrams from web to a port of db, at so many a second.
func (w *watched) send(addr netip.Addr, port uint16, n, rate int) {
	w.t.Helper()
	w.must(w.web.NS.Do(func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, port)))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		for i, begin := 0, time.Now(); i < n; i++ {
			if early := time.Duration(i)*time.Second/time.Duration(rate) - time.Since(begin); early > time.Millisecond {
				time.Sleep(early)
			}
			if _, err := c.Write([]byte("hello")); err != nil && !strings.Contains(err.Error(), "refused") {
				return err
			}
		}
		return nil
	}))
}

// get asks latchd, which listens in the node's namespace.
func (w *watched) get(port int, path string) (status int, body string) {
	w.t.Helper()
	w.must(w.NS.Do(func() error {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		req, err := http.NewRequest(http.MethodGet, "http://node"+path, nil)
		if err != nil {
			return err
		}
		if err := req.Write(c); err != nil {
			return err
		}
		res, err := http.ReadResponse(bufio.NewReader(c), req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		raw, err := io.ReadAll(res.Body)
		status, body = res.StatusCode, string(raw)
		return err
	}))
	return status, body
}

// metric sums the samples that begin with a prefix and hold every part.
func (w *watched) metric(name string, parts ...string) (sum float64) {
	w.t.Helper()
	_, body := w.get(8162, "/metrics")
next:
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, p := range parts {
			if !strings.Contains(series, p) {
				continue next
			}
		}
		f, err := strconv.ParseFloat(value, 64)
		w.must(err)
		sum += f
	}
	return sum
}

type flowLine struct {
	Time                                      time.Time
	Node, Namespace, Pod, Direction           string
	Src, Dst, Protocol, Verdict, Tier, Reason string
	SrcPort, DstPort                          uint16
	Policy                                    struct{ Kind, Namespace, Name string }
	Isolation                                 bool
	Bytes                                     int
	Suppressed                                map[string]uint64
}

func (w *watched) lines() (lines []flowLine) {
	w.t.Helper()
	raw, err := os.ReadFile(w.log)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	w.must(err)
	for text := range strings.Lines(string(raw)) {
		var l flowLine
		w.must(json.Unmarshal([]byte(text), &l))
		lines = append(lines, l)
	}
	return lines
}

// wait waits for a line about a denied packet to a port of db.
func (w *watched) wait(patience time.Duration, port uint16) (found flowLine) {
	w.t.Helper()
	w.eventually(patience, func() error {
		for _, l := range w.lines() {
			if l.DstPort == port && l.Verdict == "deny" {
				found = l
				return nil
			}
		}
		return fmt.Errorf("no line about port %d", port)
	})
	return found
}

var drops = []string{`direction="ingress"`, `reason="policy"`, `namespace="shop"`}

func TestObserve(t *testing.T) {
	w := newWatched(t, "--flow-log-allows", "1", "--audit-period", "2s")
	v4, v6 := w.db.Addrs[0], w.db.Addrs[1]

	w.send(v4, 4000, 7, 1000)
	l := w.wait(time.Second, 4000)
	if l.Namespace != "shop" || l.Pod != "db" || l.Direction != "ingress" || l.Src != "198.18.1.11" || l.Dst != "198.18.1.12" || l.Protocol != "UDP" ||
		l.Reason != "policy" || l.Tier != "NetworkPolicy" || l.Policy.Kind != "NetworkPolicy" || l.Policy.Namespace != "shop" || l.Policy.Name != "closed" || !l.Isolation || l.Bytes < 33 || l.Node != "node" {
		t.Errorf("line %+v", l)
	}
	if age := time.Since(l.Time); age < 0 || age > 5*time.Second {
		t.Errorf("line is %v old", age)
	}
	w.send(v6, 4001, 5, 1000)
	if l := w.wait(time.Second, 4001); l.Src != "fd00:18::11" {
		t.Errorf("line %+v", l)
	}
	w.eventually(time.Second, func() error {
		for _, l := range w.lines() {
			if l.Verdict == "allow" && l.Pod == "web" && l.DstPort == 4001 && l.Direction == "egress" && l.Tier == "Default" {
				return nil
			}
		}
		return errors.New("no line about what web may send")
	})
	if got := w.metric("latch_dropped_packets_total", drops...); got != 12 {
		t.Errorf("%v drops, want 12", got)
	}
	for _, port := range []int{8162, 8163} {
		path := map[int]string{8162: "/metrics", 8163: "/healthz"}[port]
		if code, body := w.get(port, path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := w.get(8163, "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d %s", code, body)
	}
	w.eventually(15*time.Second, func() error {
		if n := w.metric("latch_attachments", `state="enforced"`); n != 2 {
			return fmt.Errorf("%v attachments are enforced, want 2", n)
		}
		return nil
	})

	// Rules that move to other slots take their counters with them, and the totals stay.
	for i := range 3 {
		var more strings.Builder
		for j := range 40 * i {
			fmt.Fprintf(&more, "  - {cidr: 203.0.113.%d, ports: [{protocol: TCP, port: %d}]}\n", j, 1000+j)
		}
		text := policyOfDB
		if i > 0 {
			text += "  ingress:\n" + more.String()
		}
		w.must(w.WriteManifest("policy.yaml", []byte(text)))
		time.Sleep(300 * time.Millisecond)
		w.send(v4, 4002, 10, 1000)
	}
	if got := w.metric("latch_dropped_packets_total", drops...); got != 42 {
		t.Errorf("%v drops after changes of policy, want 42", got)
	}
	if n := w.metric("latch_policy_programming_duration_seconds_count"); n < 2 {
		t.Errorf("%v changes were timed", n)
	}
	if n := w.metric("latch_pod_attach_duration_seconds_count"); n != 2 {
		t.Errorf("%v ADDs were timed, want 2", n)
	}

	// A new reader goes on at once, with what was denied while there was none.
	w.must(w.KillLatchd())
	w.send(v4, 4003, 1, 1000)
	w.must(w.StartLatchd())
	w.must(w.WaitReady(t.Context(), 10*time.Second))
	w.send(v4, 4004, 1, 1000)
	w.wait(time.Second, 4004)
	w.wait(time.Second, 4003)
	if got := w.metric("latch_dropped_packets_total", drops...); got > 2 {
		t.Errorf("%v drops since the restart", got)
	}
}

// A program that is taken off is told, mended and counted.
func TestObserveDivergence(t *testing.T) {
	w := newWatched(t, "--audit-period", "1s", "--attach-mode", "clsact")
	w.must(w.NS.Do(func() error {
		link, err := net.InterfaceByName(w.db.HostInterface())
		if err != nil {
			return err
		}
		return attach.Detach(link.Index, attach.ToPod, "")
	}))
	w.eventually(10*time.Second, func() error {
		if n := w.metric("latch_audit_divergences_total", `kind="hook"`); n == 0 {
			return errors.New("no divergence is counted")
		}
		return nil
	})
	w.eventually(10*time.Second, func() error {
		if code, body := w.get(8163, "/readyz"); code != http.StatusOK {
			return errors.New(body)
		}
		return nil
	})
}

// A flood costs neither a core nor a disk, and no counts.
func TestFlowLogFlood(t *testing.T) {
	w := newWatched(t, "--flow-log-max-size", "1", "--flow-log-files", "1")
	const packets, rate = 200_000, 50_000
	cpu, begin := w.cpu(), time.Now()
	w.send(w.db.Addrs[0], 4000, packets, rate)
	took := time.Since(begin)
	used := w.cpu() - cpu
	var written, limited, lost float64
	w.eventually(3*time.Second, func() error {
		if got := w.metric("latch_dropped_packets_total", drops...); got != packets {
			return fmt.Errorf("%v drops, want %d", got, packets)
		}
		written, limited, lost = w.metric("latch_flow_log_lines_total"), w.metric("latch_flow_log_suppressed_total"), w.metric("latch_events_lost_total")
		if written+limited+lost != packets {
			return fmt.Errorf("%v written + %v suppressed + %v lost are not %d", written, limited, lost, packets)
		}
		return nil
	})
	t.Logf("%.0f packets a second for %v: latchd used %.1f%% of a core; %v lines, %v over the rate, %v lost in the ring",
		packets/took.Seconds(), took.Round(time.Millisecond), 100*used.Seconds()/took.Seconds(), written, limited, lost)
	if written < 500 || written > 1500*took.Seconds()+1500 {
		t.Errorf("%v lines in %v", written, took)
	}
	if used > took/2 {
		t.Errorf("latchd used %v in %v", used, took)
	}
	var size int64
	logs, err := filepath.Glob(strings.TrimSuffix(w.log, ".log") + "*")
	w.must(err)
	for _, f := range logs {
		info, err := os.Stat(f)
		w.must(err)
		size += info.Size()
	}
	if size > 2<<20+64<<10 {
		t.Errorf("%d files with %d bytes", len(logs), size)
	}
}

// cpu is what latchd has used.
func (w *watched) cpu() time.Duration {
	w.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.Latchd.PID()))
	w.must(err)
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+2:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	w.must(errors.Join(err1, err2))
	return time.Duration(user+system) * 10 * time.Millisecond
}
