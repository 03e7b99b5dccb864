package runner_test

import (
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/runner"
	"github.com/latch-cni/latch/integration/scenario"
	"github.com/latch-cni/latch/shared/testenv"
)

// The tests judge the runner, not the product: routing rules made from the tables themselves drop what
// the tables deny, so that every right cell can be made wrong on purpose.

const samples = "../testdata/scenarios"

func TestRunnerAgreesWithPerfectEnforcement(t *testing.T) {
	for _, r := range play(t, nil, "e2e-001-v4.json", "e2e-001-v6.json", "cyclonus-action-003-v4.json") {
		if !r.OK() {
			t.Errorf("%s: %d wrong: %+v", r.ID, r.Wrong(), r)
		}
		if r.Cells() == 0 {
			t.Errorf("%s: nothing was asserted", r.ID)
		}
	}
}

// A runner that cannot fail proves nothing.
func TestRunnerFindsOneWrongCell(t *testing.T) {
	tests := []struct {
		name   string
		spoil  func(map[tuple]bool, tuple)
		victim byte
		got    string
	}{
		{"denied what is allowed", func(d map[tuple]bool, v tuple) { d[v] = true }, scenario.Allow, "D"},
		{"allowed what is denied", func(d map[tuple]bool, v tuple) { delete(d, v) }, scenario.Deny, "A"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var victim scenario.Cell
			results := play(t, func(st scenario.State, denied map[tuple]bool) {
				if len(st.Objects) == 0 {
					return
				}
				for _, c := range st.Expect.Cells() {
					if c.Want == tt.victim {
						victim = c
						tt.spoil(denied, tupleOf(st, c))
						return
					}
				}
			}, "e2e-001-v4.json")
			var got []runner.Wrong
			for _, s := range results[0].Steps {
				got = append(got, s.Wrong...)
			}
			want := []runner.Wrong{{From: victim.From, To: victim.To, Target: victim.Target.String(), Want: string(tt.victim), Got: tt.got}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong cells (-want +got):\n%s", diff)
			}
		})
	}
}

func play(t *testing.T, spoil func(scenario.State, map[tuple]bool), files ...string) []runner.Result {
	t.Helper()
	testenv.RequireRoot(t)
	var paths []string
	for _, f := range files {
		paths = append(paths, filepath.Join(samples, f))
	}
	scenarios, err := scenario.LoadAll(paths...)
	if err != nil {
		t.Fatal(err)
	}
	tools, err := harness.BuildTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tools.Remove() })
	var results []runner.Result
	opts := runner.Options{Binaries: tools, Parallel: 2, Settle: time.Millisecond, Patience: time.Second,
		StandIn: func(n *harness.Node, st scenario.State) error {
			denied := map[tuple]bool{}
			for _, c := range st.Expect.Cells() {
				if c.Want == scenario.Deny {
					denied[tupleOf(st, c)] = true
				}
			}
			if spoil != nil {
				spoil(st, denied)
			}
			return n.NS.Do(func() error { return deny(denied) })
		}}
	if err := runner.Run(t.Context(), opts, scenarios, func(r runner.Result) { results = append(results, r) }); err != nil {
		t.Fatal(err)
	}
	if len(results) != len(files) {
		t.Fatalf("%d results of %d scenarios", len(results), len(files))
	}
	return results
}

type tuple struct {
	src, dst netip.Addr
	target   scenario.Target
}

func tupleOf(st scenario.State, c scenario.Cell) tuple {
	v := tuple{target: c.Target}
	for _, p := range st.Pods {
		if p.Key() == c.From {
			v.src = p.IP
		}
		if p.Key() == c.To {
			v.dst = p.IP
		}
	}
	return v
}

const rulePriority = 1

// deny replaces the routing rules of the calling thread's namespace.
func deny(denied map[tuple]bool) error {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		old, err := netlink.RuleList(family)
		if err != nil {
			return err
		}
		for _, r := range old {
			if r.Priority == rulePriority {
				r.Family = family
				err = errors.Join(err, netlink.RuleDel(&r))
			}
		}
		if err != nil {
			return err
		}
	}
	protocols := map[string]int{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP, "SCTP": unix.IPPROTO_SCTP}
	for v := range denied {
		r := netlink.NewRule()
		r.Family, r.Type, r.Priority = unix.AF_INET, unix.FR_ACT_BLACKHOLE, rulePriority
		if v.src.Is6() {
			r.Family = unix.AF_INET6
		}
		r.Src, r.Dst, r.IPProto = host(v.src), host(v.dst), protocols[v.target.Protocol]
		r.Dport = netlink.NewRulePortRange(v.target.Port, v.target.Port)
		if err := netlink.RuleAdd(r); err != nil {
			return err
		}
	}
	return nil
}

func host(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}
