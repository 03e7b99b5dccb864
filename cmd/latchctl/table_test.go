package main

import (
	"bytes"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/cleanup"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/view"
)

// wantTable compares what show writes with lines, which are indented in the test.
func wantTable(t *testing.T, show func(io.Writer), want string) {
	t.Helper()
	var got bytes.Buffer
	show(&got)
	lines := strings.Split(strings.Trim(want, "\n\t"), "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t")
	}
	if diff := cmp.Diff(lines, strings.Split(strings.TrimSuffix(got.String(), "\n"), "\n")); diff != "" {
		t.Error(diff)
	}
}

var (
	dbPolicy = &view.Policy{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}
	allowed  = view.Decision{Verdict: "allow", Rule: 0x1234, Tier: "NetworkPolicy", Policy: dbPolicy, Action: "Accept"}
	isolated = view.Decision{Verdict: "deny", Rule: 0x2345, Tier: "NetworkPolicy", Policy: dbPolicy, Action: "Deny", Isolation: true}
	open     = view.Decision{Verdict: "allow", Tier: "Default"}
)

// What cleanup would remove: nothing is said to be nothing.
func TestInventoryTable(t *testing.T) {
	wantTable(t, func(w io.Writer) { inventoryTable(w, cleanup.Inventory{StateDir: "/run/latch"}) }, "nothing of Latch is here")
	found := cleanup.Inventory{Layouts: []string{"/sys/fs/bpf/latch/v1"}, StateDir: "/run/latch"}
	wantTable(t, func(w io.Writer) { inventoryTable(w, found) }, "pins        /sys/fs/bpf/latch/v1")
}

func ago(d time.Duration) *time.Time {
	t := time.Now().Add(-d)
	return &t
}

func podDB() view.Pod {
	slot := uint32(3)
	hook := view.Hook{Attached: true, Effective: true, Mode: "clsact", Program: 77}
	return view.Pod{
		Namespace: "shop", Name: "db", UID: "uid-1", ContainerID: "c1", IfName: "eth0", Identifier: "0123", State: view.StateEnforced, Healthy: true,
		Slot: 3, Generation: 9, Policies: []view.Policy{*dbPolicy, {Kind: "ClusterNetworkPolicy", Name: "base"}},
		Ingress: view.Side{Isolated: true, Default: isolated}, Egress: view.Side{Default: open}, Since: ago(90 * time.Second),
		Interfaces: []view.Interface{{Name: "veth1", Ifindex: 7, PodID: 2, Addr4: netip.MustParseAddr("10.244.0.13"), Bound: true, Slot: &slot, ToPod: hook, FromPod: hook}},
	}
}

func TestStatusTable(t *testing.T) {
	broken := podDB()
	broken.Name, broken.State, broken.Healthy = "db-2", view.StateBroken, false
	broken.Problems = []view.Problem{{Kind: view.KindHook, Object: "veth1", Message: "to_pod: no program of ours runs"}}
	old := podDB()
	old.Name, old.State, old.Healthy, old.Interfaces, old.Problems = "old", view.StateNotAdopted, false, nil, []view.Problem{{Kind: view.KindNotAdopted, Message: "no route"}}
	s := nodeStatus{
		Node: view.Status{Node: "n1", Mode: "standard", Layout: 1, Layouts: []int{1}, Maps: 19, Progs: 2, Watcher: view.Watcher{Running: true, Ready: true, Spoke: ago(0)}},
		Pods: []view.Pod{podDB(), broken, {Namespace: "shop", Name: "web", State: view.StateExpected, Healthy: true}, old},
	}
	wantTable(t, s.table, `
		node    n1, standard mode
		kernel  2 programs and 19 maps pinned, layout v1
		latchd  ready

		POD        INTERFACE  STATE         INGRESS   EGRESS  POLICIES                            SLOT  GEN  SINCE
		shop/db    veth1      enforced      isolated  open    shop/db, ClusterNetworkPolicy base  3     9    1m30s
		shop/db-2  veth1      not-in-force  isolated  open    shop/db, ClusterNetworkPolicy base  3     9    1m30s
		shop/web   -          expected      -         -       -                                   -     -    -
		shop/old   -          not-adopted   open      open    -                                   -     -    -

		shop/db-2 is not in force:
		  veth1: to_pod: no program of ours runs

		shop/old is not in force:
		  no route
	`)
}

func TestWatcherLine(t *testing.T) {
	for _, test := range []struct {
		name string
		w    view.Watcher
		want string
	}{
		{"ready", view.Watcher{Running: true, Ready: true, Spoke: ago(0)}, "ready"},
		{"behind", view.Watcher{Running: true, Message: "two pods to go", Spoke: ago(0)}, "not ready: two pods to go"},
		{"stopped", view.Watcher{Stopped: true, Message: "it was told to", Spoke: ago(2 * time.Minute)}, "not running, last word 2m0s ago: it was told to"},
		{"down", view.Watcher{Message: "what it left stays in force", Spoke: ago(2 * time.Minute)}, "silent for 2m0s: what it left stays in force"},
		{"never", view.Watcher{Message: "has never run here"}, "has never run here"},
	} {
		if got := watcherLine(test.w); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestStatusOfProblems(t *testing.T) {
	s := nodeStatus{Node: view.Status{Layout: 1, Layouts: []int{1, 2}, Maps: 18, Progs: 2, Missing: []string{"/bpf/counters"},
		Watcher: view.Watcher{Running: true, Message: "behind", Spoke: ago(0), Problems: []state.Problem{{Object: "shop.yaml:12 Pod shop/db", Field: "spec", Message: "bad"}}}}}
	wantTable(t, s.table, `
		node    unknown
		kernel  2 programs and 18 maps pinned, layout v1, missing: /bpf/counters; layout v2 of another build is there, too
		latchd  not ready: behind

		problems that latchd reports:
		  shop.yaml:12 Pod shop/db spec: bad

		no pods
	`)
}

func TestDetails(t *testing.T) {
	p := podDB()
	since := p.Since.Local().Format(time.RFC3339)
	p.Interfaces[0].FromPod = view.Hook{Attached: true, Mode: "clsact", Program: 78, Ahead: []string{"bpf filter \"other\""}}
	wantTable(t, func(w io.Writer) { details(w, []view.Pod{p}) }, `
		pod         shop/db
		uid         uid-1
		state       enforced, rules since `+since+` (1m30s)
		container   c1 eth0
		identifier  0123
		rules       slot 3, generation 9
		policies    shop/db, ClusterNetworkPolicy base
		ingress     isolated: what no rule names is denied by shop/db (isolates)
		egress      open: what no rule names is allowed by default of the mode
		interface   veth1, index 7, pod id 2, 10.244.0.13, bound to slot 3
		  to_pod    program 77 by clsact, first in line
		  from_pod  program 78 by clsact, behind bpf filter "other"
	`)
}

func TestRulesTable(t *testing.T) {
	r := podRules{Rules: []view.Rule{
		{Direction: "ingress", Prefix: "10.244.0.12/32", Ports: []string{"TCP/5432", "UDP"}, Decision: allowed},
		{Direction: "ingress", Ports: []string{"all"}, Decision: isolated},
		{Direction: "egress", Ports: []string{"all"}, Decision: open},
	}}
	wantTable(t, r.table, `
		DIRECTION  PEER            PORTS         VERDICT  BY
		ingress    10.244.0.12/32  TCP/5432,UDP  allow    shop/db
		ingress    any other       all           deny     shop/db (isolates)
		egress     any other       all           allow    default of the mode
	`)
}

func TestExplanation(t *testing.T) {
	x := view.Explanation{
		From: view.Endpoint{Address: netip.MustParseAddr("203.0.113.9")}, To: view.Endpoint{Pod: "shop/db", Address: netip.MustParseAddr("10.244.0.13")},
		Port: "5432/TCP", Verdict: "deny",
		Egress: view.Judged{Reason: view.ReasonRemote, Decision: view.Decision{Verdict: "unknown"}},
		Ingress: view.Judged{Reason: view.ReasonPolicy, Decision: isolated, Prefix: "203.0.113.0/24", Ports: []string{"other"},
			Considered: []view.Considered{{Prefix: "203.0.0.0/16", Decision: allowed}, {Decision: open}}, NoMatch: []view.Policy{{Kind: "ClusterNetworkPolicy", Name: "base"}}},
		Warnings: []string{"shop/db: veth1: not bound"},
	}
	wantTable(t, func(w io.Writer) { explanation(w, x) }, `
		203.0.113.9 -> shop/db (10.244.0.13) 5432/TCP: denied

		SIDE     OF           VERDICT  TIER           BY                  ENTRY
		egress   203.0.113.9  unknown  -              not on this node    -
		ingress  shop/db      deny     NetworkPolicy  shop/db (isolates)  203.0.113.0/24 other

		ingress, considered too:
		  203.0.0.0/16  allow  NetworkPolicy  shop/db
		  any other     allow  Default        default of the mode

		ingress, no rule for this: ClusterNetworkPolicy base

		warning: shop/db: veth1: not bound
	`)
}

// An answer of which a side is not known says so, and what nobody judges is not called another node's.
func TestExplanationOfOneSide(t *testing.T) {
	x := view.Explanation{
		From: view.Endpoint{Address: netip.MustParseAddr("203.0.113.9")}, To: view.Endpoint{Pod: "shop/db", Address: netip.MustParseAddr("10.244.0.13")},
		Port: "5432/TCP", Verdict: "allow", Elsewhere: true,
		Egress:  view.Judged{Reason: view.ReasonRemote, Decision: view.Decision{Verdict: "unknown"}},
		Ingress: view.Judged{Reason: view.ReasonPolicy, Decision: allowed, NoMatch: []view.Policy{{Kind: "ClusterNetworkPolicy", Name: "base"}}},
	}
	wantTable(t, func(w io.Writer) { explanation(w, x) }, `
		203.0.113.9 -> shop/db (10.244.0.13) 5432/TCP: allowed here; the other side is judged elsewhere

		SIDE     OF           VERDICT  TIER           BY                ENTRY
		egress   203.0.113.9  unknown  -              not on this node  -
		ingress  shop/db      allow    NetworkPolicy  shop/db           any other

		ingress, without a part in this: ClusterNetworkPolicy base
	`)
	x.From, x.Elsewhere = view.Endpoint{Address: netip.MustParseAddr("10.244.0.1"), Node: true}, false
	x.Ingress = view.Judged{Reason: view.ReasonNode, Decision: view.Decision{Verdict: "allow"}}
	wantTable(t, func(w io.Writer) { explanation(w, x) }, `
		10.244.0.1 (this node) -> shop/db (10.244.0.13) 5432/TCP: allowed

		SIDE     OF          VERDICT  TIER  BY                                        ENTRY
		egress   10.244.0.1  unknown  -     this node itself, which no policy judges  -
		ingress  shop/db     allow    -     the other end is this node itself         -
	`)
}

func TestFlowTable(t *testing.T) {
	flow := view.Flow{Pod: "shop/db", Opened: "ingress", Protocol: "TCP", LocalPort: 5432, Remote: netip.MustParseAddrPort("10.244.0.12:41000"),
		State: "established", Idle: view.Seconds(3 * time.Second), Admitted: allowed, Generation: 9, Current: true}
	old := flow
	old.Generation, old.Current, old.Cut = 8, false, true
	wantTable(t, func(w io.Writer) { flowTable(w, []view.Flow{flow, old}) }, `
		POD      OPENED   PROTOCOL  PORT  REMOTE             STATE        IDLE  GEN      ADMITTED BY
		shop/db  ingress  TCP       5432  10.244.0.12:41000  established  3s    9        shop/db
		shop/db  ingress  TCP       5432  10.244.0.12:41000  established  3s    8 (old)  shop/db, denied now
	`)
	wantTable(t, func(w io.Writer) { flowTable(w, nil) }, "no live flows")
}

func TestShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"12ms": 12 * time.Millisecond, "59s": 59 * time.Second, "1m5s": 65 * time.Second, "3h2m": 3*time.Hour + 2*time.Minute, "9d": 9*24*time.Hour + time.Hour,
	} {
		if got := short(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

// However many ports an entry has, the table stays narrow, and each row says all of itself.
func TestManyPorts(t *testing.T) {
	ports := []string{"TCP/1", "TCP/3", "TCP/5", "TCP/7", "TCP/9", "TCP/11", "TCP/13", "TCP/15", "TCP/17", "UDP"}
	wantTable(t, podRules{Rules: []view.Rule{{Direction: "ingress", Prefix: "10.0.0.0/8", Ports: ports, Decision: allowed}}}.table, `
		DIRECTION  PEER        PORTS                                               VERDICT  BY
		ingress    10.0.0.0/8  TCP/1,TCP/3,TCP/5,TCP/7,TCP/9,TCP/11,TCP/13,TCP/15  allow    shop/db
		ingress    10.0.0.0/8  TCP/17,UDP                                          allow    shop/db`)
	if got, want := fewPorts(ports), strings.Join(ports[:8], ",")+" and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
