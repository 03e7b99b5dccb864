package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// byTree decodes a file without the short way for JSON.
func byTree(name string, data []byte) Content {
	d := decoder{file: name, lines: bytes.Count(data, []byte("\n")) + 1, seen: map[apis.Ref]int{}}
	for _, s := range split(data) {
		d.section(s)
	}
	return d.content
}

// JSON is decoded to the same objects, lines and complaints with a tree and without.
func TestDirect(t *testing.T) {
	const endpoints = `{"apiVersion":"networking.k8s.aws/v1alpha1","kind":"PolicyEndpoint",
 "metadata":{"name":"x","namespace":"t1","ownerReferences":[{"apiVersion":"v1","kind":"NetworkPolicy","name":"p","uid":"u"}]},
 "spec":{"policyRef":{"name":"p","namespace":"t1"},"podSelector":{"matchLabels":{"a":"b"}},"podIsolation":["Ingress"],"ingress":[%s]}}`
	for _, tt := range []struct {
		name, text string
		direct     int // objects that need no tree
	}{
		{"one object", fmt.Sprintf(endpoints, `{"cidr":"10.0.0.1","ports":[{"protocol":"UDP","port":53,"endPort":54}]}`), 1},
		{"two sections", "\n\n" + `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}` + "\n---\n\n  " + `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, 2},
		{"escapes", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"<<":"\u00e9\ud83d\ude00","<":"\n"}}}`, 1},
		{"empty values", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":null},"spec":null}`, 1},
		{"two values in a section", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}} {"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}`, 0},
		{"a list", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}]}`, 0},
		{"twice", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}` + "\n---\n" + `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`, 1},
		{"whole number written as a fraction", fmt.Sprintf(endpoints, `{"cidr":"10.0.0.1","ports":[{"port":8e1}]}`), 0},
		{"wrong type", fmt.Sprintf(endpoints, `{"cidr":"10.0.0.1","ports":[{"port":"80"}]}`), 0},
		{"mistyped field", fmt.Sprintf(endpoints, `{"cidr":"10.0.0.1","prots":[]}`), 0},
		{"field in another case", fmt.Sprintf(endpoints, `{"CIDR":"10.0.0.1"}`), 0},
		{"field of a newer version", fmt.Sprintf(endpoints, `{"cidr":"10.0.0.1","somethingElse":1}`), 0},
		{"key twice", `{"apiVersion":"v1","kind":"Pod","kind":"Pod","metadata":{"name":"a"}}`, 0},
		{"label twice", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a":"b","a":"c"}}}`, 0},
		{"no name", `{"apiVersion":"v1","kind":"Pod"}`, 0},
		{"another kind", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}}`, 0},
		{"flow mapping of YAML", `{apiVersion: v1, kind: Pod, metadata: {name: a}}`, 0},
		{"cut short", `{"apiVersion":"v1","kind":"Pod",`, 0},
	} {
		for _, file := range []string{"a.yaml", "a.json"} {
			want, got := byTree(file, []byte(tt.text)), Decode(file, []byte(tt.text))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s in %s: with a tree -, without +:\n%s", tt.name, file, diff)
			}
		}
		d := decoder{seen: map[apis.Ref]int{}}
		for _, s := range split([]byte(tt.text)) {
			d.direct(s)
		}
		if len(d.content.Objects) != tt.direct {
			t.Errorf("%s: %d objects without a tree, want %d", tt.name, len(d.content.Objects), tt.direct)
		}
	}
}

// A large policy in JSON takes little more memory than what it says.
func TestDirectTakesLittleMemory(t *testing.T) {
	o := v1alpha1.PolicyEndpoint{}
	o.APIVersion, o.Kind, o.Name, o.Spec.PolicyRef.Name = "networking.k8s.aws/v1alpha1", "PolicyEndpoint", "x", "p"
	port := int32(443)
	for i := range 5000 {
		o.Spec.Ingress = append(o.Spec.Ingress, v1alpha1.EndpointInfo{CIDR: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Ports: []v1alpha1.Port{{Port: &port}}})
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := Decode("a.json", text)
	runtime.ReadMemStats(&after)
	if len(c.Objects) != 1 {
		t.Fatalf("decoded to %+v", c)
	}
	if times := (after.TotalAlloc - before.TotalAlloc) / uint64(len(text)); times > 12 {
		t.Errorf("allocated %d times the size of the file", times)
	}
}
