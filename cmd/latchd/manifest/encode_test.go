package manifest

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// What is written of objects is read again without a tree and a word, also of those of a List, which do not say
// their kind.
func TestEncode(t *testing.T) {
	const text = `
apiVersion: v1
kind: PodList
items:
- metadata: {name: a, uid: u1, labels: {"é": "\n", a: "---"}, annotations: {last: "secret"}, deletionTimestamp: "2026-01-02T03:04:05Z"}
  spec: {nodeName: n, hostNetwork: true, containers: [{name: c, image: i, env: [{name: KEY, value: secret}]}]}
  status: {podIP: 10.0.0.1, phase: Running}
---
{apiVersion: v1, kind: Namespace, metadata: {name: t1, labels: {a: b}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: t1}
spec:
  podSelector: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}
  policyTypes: [Egress]
  egress: [{ports: [{port: http}, {port: 80, endPort: 81, protocol: SCTP}], to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]}]
---
apiVersion: networking.k8s.aws/v1alpha1
kind: PolicyEndpoint
metadata: {name: p-1, namespace: t1, ownerReferences: [{apiVersion: v1, kind: NetworkPolicy, name: p, uid: u}]}
spec:
  policyRef: {name: p}
  podSelector: {}
  podIsolation: [Ingress]
  podSelectorEndpoints: [{hostIP: 10.0.0.10, podIP: 10.0.0.1, name: a, namespace: t1}]
  ingress: [{cidr: "::/0", except: ["fd00::/8"], ports: [{protocol: UDP}]}, {domainName: "*.example"}]
---
apiVersion: networking.k8s.aws/v1alpha1
kind: ApplicationNetworkPolicy
metadata: {name: p, namespace: t1}
spec: {podSelector: {matchLabels: {a: b}}, egress: [{}]}
---
apiVersion: networking.k8s.aws/v1alpha1
kind: ClusterNetworkPolicy
metadata: {name: c}
spec: {tier: Baseline, priority: 0, subject: {pods: {namespaceSelector: {}, podSelector: {}}}, ingress: [{action: Deny}]}
---
apiVersion: networking.k8s.aws/v1alpha1
kind: ClusterPolicyEndpoint
metadata: {name: c-1}
spec: {policyRef: {name: c}, tier: Baseline, priority: 0, subject: {namespaces: {}}, egress: [{cidr: 10.0.0.1, action: Pass}]}
`
	want := Decode("a.yaml", []byte(text))
	if len(want.Objects) != len(kinds) || len(want.Problems) > 0 {
		t.Fatalf("%d objects, problems %v", len(want.Objects), want.Problems)
	}
	written, err := Encode(want.Objects)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(written, []byte("secret")) {
		t.Errorf("written is what nobody reads: %s", written)
	}
	d := decoder{seen: map[apis.Ref]int{}}
	for _, s := range split(written) {
		if !d.direct(s) {
			t.Errorf("not read: %s", s.data)
		}
	}
	if diff := cmp.Diff(want.Objects, d.content.Objects, cmpopts.IgnoreTypes(metav1.TypeMeta{}), cmpopts.IgnoreFields(Object{}, "File", "Line"),
		cmpopts.IgnoreFields(metav1.ObjectMeta{}, "Annotations"), cmpopts.IgnoreFields(corev1.PodSpec{}, "Containers"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
}
