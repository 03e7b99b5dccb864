package scenario

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const two = `{"id":"t","family":"ipv4","hostIP":"10.77.0.1",
"pods":[{"namespace":"x","name":"a","labels":{"pod":"a"},"ip":"10.77.1.10"},{"namespace":"x","name":"b","ip":"10.77.1.20"}],
"steps":[
 {"description":"one","namespaces":{"x":{"ns":"x"}},"networkPolicies":[{"kind":"NetworkPolicy"}],"policyEndpoints":[{"kind":"PolicyEndpoint"}],
  "expect":{"order":["x/a","x/b"],"tables":{"UDP/53":["A-","DA"],"TCP/80":["AD","AA"]}}},
 {"description":"two","namespaces":{"x":{"ns":"x"}},"pods":[{"namespace":"x","name":"a","labels":{"pod":"z"},"ip":"10.77.1.10"}],
  "expect":{"order":["x/a"],"tables":{"TCP/80":["A"]}},
  "expectFromPolicyEndpoints":{"order":["x/a"],"tables":{"TCP/81":["A"]}}},
 {"description":"three","namespaces":{"x":{"ns":"x"}},"expect":{"order":["x/a"],"tables":{"TCP/80":["A"]}}}]}`

func TestState(t *testing.T) {
	s, err := Parse([]byte(two))
	if err != nil {
		t.Fatal(err)
	}
	first := s.State(0)
	want := []Cell{
		{"x/a", "x/b", Target{"TCP", 80}, Deny},
		{"x/b", "x/a", Target{"TCP", 80}, Allow},
		{"x/b", "x/a", Target{"UDP", 53}, Deny},
	}
	if diff := cmp.Diff(want, first.Expect.Cells()); diff != "" {
		t.Errorf("cells of step 0 (-want +got):\n%s", diff)
	}
	if len(first.Objects) != 2 || len(first.Pods) != 2 {
		t.Errorf("step 0 has %d objects and %d pods, want 2 and 2", len(first.Objects), len(first.Pods))
	}
	if got := s.State(1).Expect.Targets(); !cmp.Equal(got, []Target{{"TCP", 81}}) {
		t.Errorf("step 1 probes %v: what the endpoints objects say must win", got)
	}
	third := s.State(2)
	wantPods := []Pod{{Namespace: "x", Name: "a", Labels: map[string]string{"pod": "z"}, IP: netip.MustParseAddr("10.77.1.10")}}
	if diff := cmp.Diff(wantPods, third.Pods, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("pods of step 2 are those of step 1 (-want +got):\n%s", diff)
	}
	if len(third.Objects) != 0 {
		t.Errorf("step 2 has objects, but absent objects are none: %s", third.Objects)
	}
}

func TestDocuments(t *testing.T) {
	s, err := Parse([]byte(two))
	if err != nil {
		t.Fatal(err)
	}
	docs, err := s.State(1).Documents("n1")
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) != 2 || docs[1].Name != "pod_x_a.yaml" {
		t.Fatalf("documents are %q", docs)
	}
	uid := s.Pods[0].UID()
	if uid == s.Pods[1].UID() || len(uid) != 36 {
		t.Errorf("uid %q is not that of one pod alone", uid)
	}
	want := `---
{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"ns":"x"},"name":"x"}}
---
{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"pod":"z"},"name":"a","namespace":"x","uid":"` + uid + `"},"spec":{"containers":[{"image":"none","name":"main","ports":[]}],"nodeName":"n1"}}
`
	if diff := cmp.Diff(want, string(Join(docs))); diff != "" {
		t.Errorf("manifests (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"a short row", `"AD","AA"`, `"AD","A"`, "row 1 has 1 letters"},
		{"a missing row", `"AD","AA"`, `"AD"`, "has 1 rows"},
		{"an unknown letter", `"AD","AA"`, `"AD","XA"`, "none of A, D, -"},
		{"an unknown pod", `["x/a","x/b"]`, `["x/a","x/c"]`, "x/c, which does not exist"},
		{"an unknown protocol", `UDP/53`, `GRE/53`, "not TCP, UDP or SCTP"},
		{"a bad port", `UDP/53`, `UDP/70000`, "no valid port"},
		{"an address of the other family", `10.77.1.20`, `fd77::1`, "family ipv4"},
		{"an unknown family", `"ipv4"`, `"both"`, "want ipv4 or ipv6"},
		{"a pod listed twice", `"name":"b"`, `"name":"a"`, "listed twice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(strings.Replace(two, tt.old, tt.new, 1)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want one with %q", err, tt.want)
			}
		})
	}
}
