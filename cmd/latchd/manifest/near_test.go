package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/scheme"
)

const endpoints = `apiVersion: networking.k8s.aws/v1alpha1
kind: PolicyEndpoint
metadata: {name: x, namespace: t1}
spec:
  policyRef: {name: x, namespace: t1}
  podIsolation: [Ingress, Egress]
  ingress:
  - cidr: 10.0.0.0/8
    ports:
    - port: 80
`

const labelledPod = `apiVersion: v1
kind: Pod
metadata:
  name: x
  namespace: t1
  labels: {app: a}
spec:
  hostNetwork: true
  containers: [{name: c}]
status: {phase: Running}
`

// TestTypo needs an object whose field, kind or group is mistyped to be broken, and what is no typo to
// stay in force.
func TestTypo(t *testing.T) {
	noField := func(at, path, near string) []string {
		return []string{"a.yaml:" + at + ": " + path + `: is no field of this kind; did you mean "` + near + `"?`}
	}
	tests := []struct {
		name, text, old, new string
		problems             []string // none: the object is in force, or not ours
		ignored              []string
	}{
		{name: "podIsolaton opens pods", text: endpoints, old: "podIsolation", new: "podIsolaton",
			problems: noField("6", "PolicyEndpoint t1/x: spec.podIsolaton", "podIsolation")},
		{name: "port of a rule allows all ports", text: endpoints, old: "ports:", new: "port:",
			problems: noField("9", "PolicyEndpoint t1/x: spec.ingress[0].port", "ports")},
		{name: "ports of a port", text: endpoints, old: "port: 80", new: "ports: 80",
			problems: noField("10", "PolicyEndpoint t1/x: spec.ingress[0].ports[0].ports", "port")},
		{name: "cdir", text: endpoints, old: "cidr", new: "cdir",
			problems: noField("8", "PolicyEndpoint t1/x: spec.ingress[0].cdir", "cidr")},
		{name: "ingres", text: endpoints, old: "ingress:", new: "ingres:",
			problems: noField("7", "PolicyEndpoint t1/x: spec.ingres", "ingress")},
		{name: "case", text: endpoints, old: "podIsolation", new: "PodIsolation",
			problems: noField("6", "PolicyEndpoint t1/x: spec.PodIsolation", "podIsolation")},
		{name: "lables of a pod", text: labelledPod, old: "labels", new: "lables",
			problems: noField("6", "Pod t1/x: metadata.lables", "labels")},
		{name: "hostnetwork of a pod", text: labelledPod, old: "hostNetwork", new: "hostnetwork",
			problems: noField("8", "Pod t1/x: spec.hostnetwork", "hostNetwork")},
		{name: "metdata", text: labelledPod, old: "metadata", new: "metdata",
			problems: noField("3", "Pod: metdata", "metadata")},
		{name: "podSelecter", text: policy, old: "podSelector", new: "podSelecter",
			problems: noField("5", "NetworkPolicy t1/p: spec.podSelecter", "podSelector")},
		{name: "in a merged mapping", text: endpoints, old: "ports:\n    - port: 80", new: "<<: {prots: [{port: 80}]}",
			problems: noField("9", "PolicyEndpoint t1/x: spec.ingress[0].prots", "ports")},
		{name: "kind", text: policy, old: "NetworkPolicy", new: "NetworkPolcy",
			problems: []string{`a.yaml:2: NetworkPolcy t1/p: kind: "NetworkPolcy" is not known; did you mean "NetworkPolicy"?`}},
		{name: "kind of endpoints, case", text: endpoints, old: "PolicyEndpoint", new: "Policyendpoints",
			problems: []string{`a.yaml:2: Policyendpoints t1/x: kind: "Policyendpoints" is not known; did you mean "PolicyEndpoint"?`}},
		{name: "kind of a list", text: "apiVersion: v1\nkind: Lits\nitems: []\n",
			problems: []string{`a.yaml:2: Lits: kind: "Lits" is not known; did you mean "List"?`}},
		{name: "items of a list", text: "apiVersion: v1\nkind: List\nitem: []\n",
			problems: noField("3", "item", "items")},
		{name: "group", text: policy, old: "networking.k8s.io", new: "networking.k8s.oi",
			problems: []string{`a.yaml:1: NetworkPolicy t1/p: apiVersion: "networking.k8s.oi/v1" has no kind NetworkPolicy; did you mean "networking.k8s.io/v1"?`}},
		{name: "group of another kind", text: policy, old: "networking.k8s.io/v1", new: "v1",
			problems: []string{`a.yaml:1: NetworkPolicy t1/p: apiVersion: "v1" has no kind NetworkPolicy; did you mean "networking.k8s.io/v1"?`}},
		{name: "another project's kind", text: policy, old: "networking.k8s.io/v1\nkind: NetworkPolicy", new: "policy.example.com/v1\nkind: NetworkPolicys",
			ignored: []string{"a.yaml:1: NetworkPolicys t1/p: NetworkPolicys of policy.example.com/v1 is not a kind that matters here"}},
		{name: "a later field", text: endpoints, old: "podIsolation", new: "later: 1\n  podIsolation",
			ignored: []string{"a.yaml:6: PolicyEndpoint t1/x: spec.later: is no field of this kind and is left out"}},
		{name: "a later field of a container", text: labelledPod, old: "name: c", new: "name: c, imagex: y",
			ignored: []string{"a.yaml:9: Pod t1/x: spec.containers[0].imagex: is no field of this kind and is left out"}},
		{name: "a later field of status", text: labelledPod, old: "phase:", new: "phases:"},
		{name: "a label is no field", text: labelledPod, old: "app:", new: "lables:"},
		{name: "rules of an application policy, which are not read",
			text: "apiVersion: networking.k8s.aws/v1alpha1\nkind: ApplicationNetworkPolicy\nmetadata: {name: x}\nspec: {podSelector: {}, ingress: [{from: []}], egress: [{to: []}]}\n"},
		{name: "rules of a cluster policy, which are not read",
			text: "apiVersion: networking.k8s.aws/v1alpha1\nkind: ClusterNetworkPolicy\nmetadata: {name: x}\nspec: {subject: {namespaces: {}}, ingress: [{name: n, action: Deny, from: [], ports: []}]}\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(tt.text, tt.old, tt.new, 1)
			have := summarise(Decode("a.yaml", []byte(text)))
			if diff := cmp.Diff(summary{Problems: tt.problems, Ignored: tt.ignored}, summary{Problems: have.Problems, Ignored: have.Ignored}); diff != "" {
				t.Error("want -, have +:\n", diff)
			}
			kept := tt.problems == nil && !strings.Contains(tt.name, "another project")
			if (len(have.Objects) == 1) != kept {
				t.Errorf("objects %v, want one: %v", have.Objects, kept)
			}
		})
	}
}

// TestTypoBehindMany finds a typo behind more unknown fields than are told.
func TestTypoBehindMany(t *testing.T) {
	var later strings.Builder
	for i := range 2 * maxLeftOut {
		later.WriteString("  later" + strings.Repeat("x", i) + ": 1\n")
	}
	c := Decode("a.yaml", []byte(strings.Replace(endpoints, "  podIsolation", later.String()+"  podIsolaton", 1)))
	if len(c.Objects) != 0 || len(c.Problems) != 1 || c.Problems[0].Line != 6+2*maxLeftOut {
		t.Errorf("objects %v, problems %v", c.Objects, c.Problems)
	}
}

// TestKindsAreNoTypos needs every kind of Kubernetes that is not ours to be passed over.
func TestKindsAreNoTypos(t *testing.T) {
	for gvk := range scheme.Scheme.AllKnownTypes() {
		_, ours := kinds[gvk.Kind]
		if _, list := listOf(gvk.Kind); ours || list {
			continue
		}
		version, kind := gvk.ToAPIVersionAndKind()
		if _, _, err := maker(version, kind); err != nil {
			t.Errorf("%s of %s: %v", kind, version, err)
		}
	}
}
