package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// summary is what the tables compare: names, lines and messages.
type summary struct {
	Objects  []string // "line Ref"
	Problems []string
	Ignored  []string
}

func summarise(c Content) summary {
	var s summary
	for _, o := range c.Objects {
		s.Objects = append(s.Objects, at(o.Line)+o.Ref.String())
	}
	for _, p := range c.Problems {
		s.Problems = append(s.Problems, p.String())
	}
	for _, p := range c.Ignored {
		s.Ignored = append(s.Ignored, p.String())
	}
	return s
}

func at(line int) string { return string(rune('0'+line/10)) + string(rune('0'+line%10)) + " " }

const policy = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: t1}
spec:
  podSelector: {}
`

func TestDecode(t *testing.T) {
	tests := []struct {
		name string
		file string // default a.yaml
		text string
		want summary
	}{
		{name: "nothing", text: "", want: summary{}},
		{name: "comments and separators only", text: "# a\n---\n---\n# b\n", want: summary{}},
		{name: "one document", text: policy, want: summary{Objects: []string{"01 NetworkPolicy t1/p"}}},
		{
			name: "byte order mark, directive, CRLF and end marker",
			text: "\xef\xbb\xbf%YAML 1.2\r\n---\r\napiVersion: v1\r\nkind: Namespace\r\nmetadata:\r\n  name: t1\r\n...\r\n",
			want: summary{Objects: []string{"03 Namespace t1"}},
		},
		{
			name: "content behind the dashes",
			text: "--- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n--- # b\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n",
			want: summary{Objects: []string{"01 Namespace a", "03 Namespace b"}},
		},
		{
			name: "dashes inside a value are no separator",
			text: "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  annotations:\n    x: |\n      ---\n      b\n",
			want: summary{Objects: []string{"01 Namespace a"}},
		},
		{
			name: "a broken document does not hide its neighbours",
			text: "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\nkind: Pod\nmetadata: [\n---\n" + policy,
			want: summary{
				Objects:  []string{"01 Namespace a", "08 NetworkPolicy t1/p"},
				Problems: []string{"a.yaml:6: did not find expected node content"},
			},
		},
		{
			name: "indentation error",
			text: "# one\n\n---\napiVersion: v1\nkind: Pod\n  metadata: x\n",
			want: summary{Problems: []string{"a.yaml:6: mapping values are not allowed in this context"}},
		},
		{
			name: "wrong type deep inside",
			text: "---\napiVersion: networking.k8s.aws/v1alpha1\nkind: PolicyEndpoint\nmetadata:\n  name: x\nspec:\n  policyRef: {name: x}\n  ingress:\n  - cidr: 10.0.0.1\n    ports:\n    - port: 80\n    - port: eighty\n",
			want: summary{Problems: []string{
				"a.yaml:12: PolicyEndpoint x: spec.ingress[0].ports[1].port: is the string \"eighty\", want an integer of 32 bits",
			}},
		},
		{
			name: "mapping where a sequence belongs",
			text: "apiVersion: networking.k8s.aws/v1alpha1\nkind: PolicyEndpoint\nmetadata:\n  name: x\n  namespace: t1\nspec:\n  policyRef: {name: x}\n  ingress:\n    cidr: 10.0.0.1\n",
			want: summary{Problems: []string{"a.yaml:9: PolicyEndpoint t1/x: spec.ingress: is a mapping, want a sequence"}},
		},
		{
			name: "values that read themselves",
			text: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  creationTimestamp: yesterday\n---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: y}\n" +
				"spec:\n  podSelector: {}\n  ingress:\n  - {}\n  - ports:\n    - port: [80]\n",
			want: summary{Problems: []string{
				`a.yaml:5: Pod x: metadata.creationTimestamp: is the string "yesterday", want a time like 2026-01-02T15:04:05Z`,
				"a.yaml:15: NetworkPolicy y: spec.ingress[1].ports[0].port: is a sequence, want an integer or a string",
			}},
		},
		{
			name: "number that is too large",
			text: "apiVersion: networking.k8s.aws/v1alpha1\nkind: PolicyEndpoint\nmetadata: {name: x}\nspec:\n  policyRef: {name: x}\n  egress:\n  - {cidr: 10.0.0.1, ports: [{port: 99999999999}]}\n",
			want: summary{Problems: []string{"a.yaml:7: PolicyEndpoint x: spec.egress[0].ports[0].port: is the number 99999999999, want an integer of 32 bits"}},
		},
		{
			name: "integer where a label belongs",
			text: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  labels:\n    app: a\n    rev: 7\n",
			want: summary{Problems: []string{"a.yaml:7: Pod x: metadata.labels.rev: is the number 7, want a string"}},
		},
		{
			name: "key twice",
			text: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  labels: {a: b}\n  labels: {c: d}\n",
			want: summary{Problems: []string{`a.yaml:6: Pod x: key "labels" is already on line 5`}},
		},
		{
			name: "unknown fields are tolerated, and named",
			text: policy + "  laterField: {a: [1, 2]}\nstatus: x\n",
			want: summary{
				Objects: []string{"01 NetworkPolicy t1/p"},
				Ignored: []string{"a.yaml:6: NetworkPolicy t1/p: spec.laterField: is no field of this kind and is left out"},
			},
		},
		{
			name: "other kinds are noted",
			text: "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: t1}\n---\napiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: c}\n",
			want: summary{Ignored: []string{
				"a.yaml:1: Service t1/s: Service of v1 is not a kind that matters here",
				"a.yaml:5: NetworkPolicy c: NetworkPolicy of projectcalico.org/v3 is not a kind that matters here",
			}},
		},
		{
			name: "our kind in an unknown version",
			text: "apiVersion: networking.k8s.aws/v1\nkind: PolicyEndpoint\nmetadata: {name: s}\n",
			want: summary{Problems: []string{`a.yaml:1: PolicyEndpoint s: apiVersion: version "v1" of kind PolicyEndpoint is not known, want "v1alpha1"`}},
		},
		{
			name: "no kind, no mapping, no name",
			text: "apiVersion: v1\n---\n- a\n---\njust text\n---\napiVersion: v1\nkind: Pod\nmetadata: {}\n",
			want: summary{Problems: []string{
				"a.yaml:1: apiVersion or kind is missing",
				"a.yaml:3: want a mapping with apiVersion and kind",
				"a.yaml:5: want a mapping with apiVersion and kind",
				"a.yaml:7: Pod: metadata.name: is missing",
			}},
		},
		{
			name: "selector that does not parse",
			text: strings.Replace(policy, "podSelector: {}", "podSelector: {matchExpressions: [{key: a, operator: Within}]}", 1),
			want: summary{Problems: []string{`a.yaml:1: NetworkPolicy t1/p: spec.podSelector: "Within" is not a valid label selector operator`}},
		},
		{
			name: "policyRef of another namespace",
			text: "apiVersion: networking.k8s.aws/v1alpha1\nkind: PolicyEndpoint\nmetadata: {name: x, namespace: a}\nspec: {policyRef: {name: p, namespace: b}}\n",
			want: summary{Problems: []string{`a.yaml:1: PolicyEndpoint a/x: spec.policyRef.namespace: is "b", but the object is in namespace "a"`}},
		},
		{
			name: "subject with nothing in it",
			text: "apiVersion: networking.k8s.aws/v1alpha1\nkind: ClusterNetworkPolicy\nmetadata: {name: x}\nspec: {subject: {}}\n",
			want: summary{Problems: []string{"a.yaml:1: ClusterNetworkPolicy x: spec.subject: has neither namespaces nor pods"}},
		},
		{
			name: "the same object twice",
			text: policy + "---\n" + policy,
			want: summary{
				Objects:  []string{"01 NetworkPolicy t1/p"},
				Problems: []string{"a.yaml:7: NetworkPolicy t1/p: the same object is on line 1, which is the one that counts"},
			},
		},
		{
			name: "List with one broken item",
			text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n- apiVersion: v1\n  kind: Pod\n  metadata: 7\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: b}\n",
			want: summary{
				Objects:  []string{"04 Namespace a", "10 Pod default/b"},
				Problems: []string{"a.yaml:9: Pod: metadata: is the number 7, want a mapping"},
			},
		},
		{
			name: "typed List whose items have no kind",
			text: "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- metadata: {name: b, namespace: t1}\n",
			want: summary{Objects: []string{"04 Pod default/a", "05 Pod t1/b"}},
		},
		{
			name: "plain List whose item has no kind",
			text: "apiVersion: v1\nkind: List\nitems:\n- metadata: {name: a}\n",
			want: summary{Problems: []string{"a.yaml:4: apiVersion or kind is missing"}},
		},
		{
			name: "anchors, aliases and merges",
			text: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: x\n  annotations: &a {b: c, d: e}\n  labels:\n    <<: *a\n    b: own\n",
			want: summary{Objects: []string{"01 Pod default/x"}},
		},
		{
			name: "alias of itself",
			text: "apiVersion: v1\nkind: Pod\nmetadata: &a\n  name: x\n  labels: *a\n",
			want: summary{Problems: []string{"a.yaml:3: Pod x: nested too deeply"}},
		},
		{
			name: "JSON with tabs and two values", file: "a.json",
			text: "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Namespace\", \"metadata\": {\"name\": \"a\"}}\n{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"\\ud83d\\ude00\"}}\n",
			want: summary{Objects: []string{"01 Namespace a", "04 Pod default/\U0001F600"}},
		},
		{
			name: "JSON broken after a good value", file: "a.json",
			text: "{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"a\"}}\n{\"apiVersion\":\n \"v1\" \"kind\": 1}\n",
			want: summary{
				Objects:  []string{"01 Namespace a"},
				Problems: []string{"a.json:3: invalid character '\"' after object key:value pair"},
			},
		},
		{
			name: "JSON cut short", file: "a.json", text: "{\"apiVersion\": \"v1\",\n\n",
			want: summary{Problems: []string{"a.json:1: unexpected end of the text"}},
		},
		{
			name: "wrong type in JSON", file: "a.json",
			text: "{\"apiVersion\": \"v1\",\n\"kind\": \"Pod\",\n\"metadata\": {\"name\": \"a\",\n\"labels\": {\"a\":\n true}}}",
			want: summary{Problems: []string{"a.json:5: Pod a: metadata.labels.a: is true, want a string"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := tt.file
			if file == "" {
				file = "a.yaml"
			}
			if diff := cmp.Diff(tt.want, summarise(Decode(file, []byte(tt.text)))); diff != "" {
				t.Error("want -, have +:\n", diff)
			}
		})
	}
}

// TestDecodeValues looks at what is inside decoded objects.
func TestDecodeValues(t *testing.T) {
	c := Decode("a.yaml", []byte(`apiVersion: v1
kind: Pod
metadata:
  name: a
  creationTimestamp: 2026-01-02T03:04:05Z
  annotations: &a {b: c, d: e}
  labels: {<<: *a, b: "on"}
spec: {nodeName: n1, hostNetwork: true}
status: {phase: Running, podIP: 10.0.0.1}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p}
spec: {podSelector: {}, ingress: [{ports: [{port: http}, {port: 0x50}]}]}
---
apiVersion: networking.k8s.aws/v1alpha1
kind: ClusterPolicyEndpoint
metadata: {name: x, namespace: ignored}
spec:
  policyRef: {name: x}
  tier: Admin
  priority: 1_0
  egress: [{action: Deny, cidr: 10.0.0.0/8, ports: [{protocol: UDP, port: 53}]}]
`))
	if len(c.Problems) > 0 || len(c.Objects) != 3 {
		t.Fatalf("have %+v", c)
	}
	pod := c.Objects[0].Object.(*corev1.Pod)
	if diff := cmp.Diff(map[string]string{"b": "on", "d": "e"}, pod.Labels); diff != "" {
		t.Error("labels: want -, have +:\n", diff)
	}
	if !pod.Spec.HostNetwork || pod.Spec.NodeName != "n1" || pod.Status.Phase != corev1.PodRunning || pod.CreationTimestamp.IsZero() {
		t.Errorf("pod is %+v", pod)
	}
	np := c.Objects[1].Object.(*networkingv1.NetworkPolicy)
	if ports := np.Spec.Ingress[0].Ports; ports[0].Port.StrVal != "http" || ports[1].Port.IntVal != 0x50 || np.Namespace != "default" {
		t.Errorf("policy is %+v", np)
	}
	cpe := c.Objects[2].Object.(*v1alpha1.ClusterPolicyEndpoint)
	if rule := cpe.Spec.Egress[0]; cpe.Namespace != "" || cpe.Spec.Priority != 10 || rule.Action != v1alpha1.ActionDeny || *rule.Ports[0].Port != 53 {
		t.Errorf("cluster policy endpoint is %+v", cpe)
	}
}

// TestDecodeAliasBomb needs bounded time and memory for text that expands to gigabytes.
func TestDecodeAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		p, n := string(rune('a'+i-1)), string(rune('a'+i))
		if i == 1 {
			p = "a0"
		}
		b.WriteString(n + ": &" + n + " [*" + strings.Repeat(p+",*", 9) + p + "]\n")
	}
	c := Decode("a.yaml", []byte(b.String()))
	if len(c.Objects) != 0 || len(c.Problems) != 1 {
		t.Fatalf("have %d objects and problems %v", len(c.Objects), c.Problems)
	}
}

// FuzzDecode feeds any text: no panic, lines inside the file, names unique, equal answers to equal
// questions.
func FuzzDecode(f *testing.F) {
	f.Add("a.yaml", []byte(policy+"---\n"+policy))
	f.Add("a.json", []byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}]}`))
	f.Add("a.yaml", []byte("kind: &a x\napiVersion: *a\n<<: [*a]\n"))
	f.Add("a.yaml", []byte("--- !!binary |\n  x\n...\n? [a]\n: b\n"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		c := Decode(name, data)
		lines := strings.Count(string(data), "\n") + 1
		seen := map[string]bool{}
		for _, o := range c.Objects {
			if o.Line < 1 || o.Line > lines || o.GetName() == "" || seen[o.Ref.String()] {
				t.Errorf("object %v on line %d of %d", o.Ref, o.Line, lines)
			}
			seen[o.Ref.String()] = true
		}
		for _, p := range append(c.Problems, c.Ignored...) {
			if p.File != name || p.Line < 1 || p.Line > lines || p.Message == "" {
				t.Errorf("problem %q in a file of %d lines", p, lines)
			}
		}
		if diff := cmp.Diff(summarise(c), summarise(Decode(name, data))); diff != "" {
			t.Error("decoded twice:\n", diff)
		}
		if diff := cmp.Diff(c, byTree(name, data)); diff != "" {
			t.Error("decoded by way of a tree:\n", diff)
		}
	})
}
