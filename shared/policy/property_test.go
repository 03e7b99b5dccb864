package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// anyRuleIndex ignores the one thing that depends on order.
var anyRuleIndex = cmpopts.IgnoreFields(Source{}, "Rule")

// TestCompileEqualsOracle proves that compiled rules mean what the API says, at every address and
// port where a verdict can change.
func TestCompileEqualsOracle(t *testing.T) {
	base := seed(t)
	rounds := 400
	if testing.Short() {
		rounds = 50
	}
	for i := range rounds {
		r := rand.New(rand.NewPCG(base, uint64(i)))
		in := chooseInput(r)
		if !checkInput(t, r, in, math.MaxInt) {
			t.Fatalf("POLICY_SEED=%d round %d: input %+v", base, i, in)
		}
	}
}

// checkInput compares every judge there is of one input at up to limit packets per direction, and
// checks the invariants of its Rules.
func checkInput(t *testing.T, r *rand.Rand, in Input, limit int) bool {
	t.Helper()
	rules := Compile(in)
	checkShape(t, rules)
	for _, d := range Directions {
		all := probes(in, d)
		if len(all) > limit {
			all = mixed(r, all)[:limit]
		}
		for _, p := range all {
			want, tier := oracle(in, d, p.addr, p.proto, p.port)
			got := rules.Lookup(d, p.addr, p.proto, p.port)
			if got.Verdict != want {
				t.Errorf("%v %v %v/%d: rules say %v, oracle %v (%v)", d, p.addr, p.proto, p.port, got.Verdict, want, tier)
				return false
			}
			source, ok := rules.Source(got.Rule)
			if ok != (tier != TierDefault) || ok && source.Tier != tier {
				t.Errorf("%v %v %v/%d: decided by %+v, oracle %v", d, p.addr, p.proto, p.port, source, tier)
				return false
			}
			if r.IntN(8) == 0 && !checkExplanation(t, in, d, p, got, source) {
				return false
			}
		}
	}
	for range 3 {
		again := Compile(shuffled(r, in))
		if diff := diffRules(rules, again); diff != "" {
			t.Errorf("other order, other rules (-want +got):\n%s", diff)
			return false
		}
		if rules.Hash() != again.Hash() {
			t.Error("other order, other hash")
			return false
		}
	}
	return !t.Failed()
}

func diffRules(a, b *Rules) string {
	return cmp.Diff(a, b, anyRuleIndex, cmpopts.EquateComparable(Entry{}.Prefix))
}

// checkShape checks what types.go promises of Rules.
func checkShape(t *testing.T, r *Rules) {
	t.Helper()
	used := map[RuleID]bool{}
	note := func(res Result) {
		if res.Rule != 0 {
			used[res.Rule] = true
			if res.Rule < 256 || res.Rule > 0xffffff {
				t.Errorf("id %d is out of range", res.Rule)
			}
		}
	}
	for _, d := range Directions {
		note(r.OnMiss[d])
		for i, e := range r.Entries[d] {
			if i > 0 && blockOf(r.Entries[d][i-1].Prefix).compare(blockOf(e.Prefix)) >= 0 {
				t.Errorf("%v: %v after %v", d, e.Prefix, r.Entries[d][i-1].Prefix)
			}
			if e.Prefix != e.Prefix.Masked() || e.Prefix.Addr().Is4In6() {
				t.Errorf("%v: %v is not canonical", d, e.Prefix)
			}
			checkPorts(t, e)
			if slices.Equal(e.Ports, around(r, d, i)) {
				t.Errorf("%v: %v says the same as what is around it", d, e.Prefix)
			}
			for _, p := range e.Ports {
				note(p.Result)
			}
		}
	}
	if len(used) != len(r.Sources) {
		t.Errorf("%d ids in use, %d sources", len(used), len(r.Sources))
	}
	for i, s := range r.Sources {
		if !used[s.ID] || i > 0 && s.ID <= r.Sources[i-1].ID {
			t.Errorf("source %d: unused or out of order", s.ID)
		}
	}
}

func checkPorts(t *testing.T, e Entry) {
	t.Helper()
	if len(e.Ports) == 0 || e.Ports[0].Start != 0 {
		t.Fatalf("%v: ports do not start at 0: %v", e.Prefix, e.Ports)
	}
	for i := 1; i < len(e.Ports); i++ {
		a, b := e.Ports[i-1], e.Ports[i]
		if a.Start >= b.Start || b.Start > PortKey(255, 65535) || a.Result == b.Result {
			t.Errorf("%v: breakpoints %v and %v", e.Prefix, a, b)
		}
	}
}

// around returns the ports of the nearest entry around entry i, by looking at all of them.
func around(r *Rules, d Direction, i int) []Breakpoint {
	out := []Breakpoint{{Result: r.OnMiss[d]}}
	at := r.Entries[d][i].Prefix
	bits := -1
	for j, e := range r.Entries[d] {
		if j != i && e.Prefix.Contains(at.Addr()) && e.Prefix.Bits() < at.Bits() && e.Prefix.Bits() > bits {
			out, bits = e.Ports, e.Prefix.Bits()
		}
	}
	return out
}

// checkExplanation compares Explain with the compiled rules: same verdict, same source, and a rule
// of that source that is one of those that match.
func checkExplanation(t *testing.T, in Input, d Direction, p probe, got Result, source Source) bool {
	t.Helper()
	e := Explain(in, d, p.addr, p.proto, p.port)
	if e.Verdict != got.Verdict || e.Decision.ID != got.Rule || e.Decision.identity() != source.identity() {
		t.Errorf("rules say %v by %+v, explanation: %v", got.Verdict, source, e)
		return false
	}
	decides := 0
	for _, m := range e.Matches {
		if m.Decides {
			decides++
			if m.Source != e.Decision || m.Source.Rule < source.Rule {
				t.Errorf("%v: decided by %+v, marked %+v", e, e.Decision, m.Source)
				return false
			}
		}
	}
	if explicit := e.Tier != TierDefault && !e.Decision.Isolation; explicit != (decides == 1) {
		t.Errorf("%v: %d matches decide", e, decides)
		return false
	}
	return true
}
