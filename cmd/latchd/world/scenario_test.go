package world

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

// scenario is a conformance file: objects as the real controller writes them, step by step, and the
// verdict of every pod-to-pod probe after each step.
type scenario struct {
	ID     string
	HostIP string
	Pods   []scenarioPod
	Steps  []struct {
		Description               string
		Namespaces                map[string]map[string]string
		Pods                      []scenarioPod // in full, only when changed
		NetworkPolicies           []networkingv1.NetworkPolicy
		ClusterNetworkPolicies    []v1alpha1.ClusterNetworkPolicy
		PolicyEndpoints           []v1alpha1.PolicyEndpoint
		ClusterPolicyEndpoints    []v1alpha1.ClusterPolicyEndpoint
		Expect                    verdicts
		ExpectFromPolicyEndpoints *verdicts
	}
}

type scenarioPod struct {
	Namespace, Name, IP string
	Labels              map[string]string
}

// verdicts has a table for each "protocol/port": a letter for source i and destination j.
type verdicts struct {
	Order  []string
	Tables map[string][]string
}

// scenarioFiles returns the files of testdata, and those of the whole set if it is there: in the
// directory that LATCH_SCENARIOS names, or in shared/scenarios beside the repository.
func scenarioFiles(t *testing.T) []string {
	t.Helper()
	dir := os.Getenv("LATCH_SCENARIOS")
	if dir == "" {
		dir = filepath.Join(repositoryRoot(t), "..", "shared", "scenarios")
	}
	all, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Log("the whole set of scenarios is not here (LATCH_SCENARIOS): only those of testdata run")
	}
	few, err := filepath.Glob(filepath.Join("testdata", "scenarios", "*.json"))
	if err != nil || len(few) == 0 {
		t.Fatalf("scenarios in testdata: %d, error %v", len(few), err)
	}
	names := map[string]bool{}
	for _, f := range all {
		names[filepath.Base(f)] = true
	}
	for _, f := range few {
		if !names[filepath.Base(f)] {
			all = append(all, f)
		}
	}
	return all
}

func repositoryRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

func readScenario(t *testing.T, file string) scenario {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s scenario
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

// variant is how much of the objects the World is given. The verdicts must be the same.
type variant struct {
	name     string
	policies bool // the policies' own objects
	pods     bool // Pod objects
}

// TestScenarios feeds each step, lets the quiet periods pass, compiles what is desired and probes: the
// sender's egress and the receiver's ingress must both allow. A pod always reaches itself.
func TestScenarios(t *testing.T) {
	for _, v := range []variant{
		{"all objects", true, true},
		{"endpoints objects and pods", false, true},
		{"endpoints objects alone", false, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			files := scenarioFiles(t)
			passed, cells := 0, 0
			for _, file := range files {
				ok := t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
					cells += runScenario(t, readScenario(t, file), v)
				})
				if ok {
					passed++
				}
			}
			t.Logf("%d of %d scenarios, %d verdicts", passed, len(files), cells)
		})
	}
}

func runScenario(t *testing.T, s scenario, v variant) int {
	clock := &clock{now: time.Unix(1000, 0)}
	w := New(Options{Now: clock.Now, NodeName: "node", NodeIPs: []netip.Addr{netip.MustParseAddr(s.HostIP)}})
	pods, cells := s.Pods, 0
	for i, step := range s.Steps {
		if step.Pods != nil {
			pods = step.Pods
		}
		var objects []apis.Object
		for name, labels := range step.Namespaces {
			objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
		}
		for j := range step.PolicyEndpoints {
			objects = append(objects, &step.PolicyEndpoints[j])
		}
		for j := range step.ClusterPolicyEndpoints {
			objects = append(objects, &step.ClusterPolicyEndpoints[j])
		}
		if v.policies {
			for j := range step.NetworkPolicies {
				objects = append(objects, &step.NetworkPolicies[j])
			}
			for j := range step.ClusterNetworkPolicies {
				objects = append(objects, &step.ClusterNetworkPolicies[j])
			}
		}
		if v.pods {
			for _, p := range pods {
				objects = append(objects, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: p.Namespace, Name: p.Name, Labels: p.Labels,
						UID: types.UID(p.Namespace + "/" + p.Name),
					},
					Spec:   corev1.PodSpec{NodeName: "node"},
					Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: p.IP},
				})
			}
		}
		w.Replace(objects)
		if i == 0 {
			w.Synced()
		}
		for _, id := range w.Identifiers() {
			w.SetRunning(id, true)
		}
		clock.Add(6 * time.Second)
		w.Due()
		want := step.Expect
		if step.ExpectFromPolicyEndpoints != nil {
			want = *step.ExpectFromPolicyEndpoints
		}
		rules := compileAll(t, w)
		cells += probe(t, fmt.Sprintf("step %d, %s", i, step.Description), want, pods, rules)
	}
	return cells
}

// compileAll returns the rules of each pod that the World knows.
func compileAll(t *testing.T, w *World) map[string]*policy.Rules {
	t.Helper()
	out := map[string]*policy.Rules{}
	for _, id := range w.Identifiers() {
		d, ok := w.Desired(id)
		if !ok || !d.SameRunning || d.HoldRunning || len(d.Pending) > 0 || !d.RunningAt.IsZero() {
			t.Fatalf("%v has not settled: %+v", id, d)
		}
		for _, p := range d.Problems {
			t.Logf("problem: %v", p)
		}
		rules := policy.Compile(d.Create)
		for _, p := range d.Pods {
			out[p.Namespace+"/"+p.Name] = rules
		}
	}
	return out
}

func probe(t *testing.T, at string, want verdicts, pods []scenarioPod, rules map[string]*policy.Rules) int {
	t.Helper()
	ips := map[string]netip.Addr{}
	for _, p := range pods {
		ips[p.Namespace+"/"+p.Name] = netip.MustParseAddr(p.IP)
	}
	allows := func(pod string, d policy.Direction, peer string, proto policy.Protocol, port uint16) bool {
		r := rules[pod]
		return r == nil || r.Lookup(d, ips[peer], proto, port).Verdict == policy.Allow
	}
	n := 0
	for _, table := range slices.Sorted(mapKeys(want.Tables)) {
		proto, port := parseTable(t, table)
		for i, from := range want.Order {
			for j, to := range want.Order {
				letter := want.Tables[table][i][j]
				if letter == '-' {
					continue
				}
				if !ips[from].IsValid() || !ips[to].IsValid() {
					t.Fatalf("%s: no address for %s or %s", at, from, to)
				}
				n++
				got := byte('D')
				if from == to || allows(from, policy.Egress, to, proto, port) && allows(to, policy.Ingress, from, proto, port) {
					got = 'A'
				}
				if got != letter {
					t.Errorf("%s: %s %s -> %s is %c, want %c", at, table, from, to, got, letter)
				}
			}
		}
	}
	return n
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func parseTable(t *testing.T, table string) (policy.Protocol, uint16) {
	t.Helper()
	name, number, _ := strings.Cut(table, "/")
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		t.Fatalf("table %q: %v", table, err)
	}
	proto := map[string]policy.Protocol{"TCP": policy.TCP, "UDP": policy.UDP, "SCTP": policy.SCTP}[name]
	if proto == 0 {
		t.Fatalf("table %q: no protocol", table)
	}
	return proto, uint16(port)
}

// clock is a time that only tests move.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time      { return c.now }
func (c *clock) Add(d time.Duration) { c.now = c.now.Add(d) }
