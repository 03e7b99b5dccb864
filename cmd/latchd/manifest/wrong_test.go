package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Values that cannot be read are told with their lines, in YAML and in JSON, by way of a tree or not. The object is
// returned all the same.
func TestWrongValues(t *testing.T) {
	const head = `{"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "PolicyEndpoint", "metadata": {"name": "a"},
"spec": {"policyRef": {"name": "p"},
 "podIsolation": ["ingress"],
`
	for _, tt := range []struct {
		name, text string
		wrong      []string
		ignored    []string
	}{
		{name: "YAML with an anchor", text: `---
apiVersion: networking.k8s.aws/v1alpha1
kind: ClusterPolicyEndpoint
metadata: {name: a}
spec:
  tier: admin
  policyRef: {name: p}
  priority: 1001
  ingress:
  - &rule
    action: deny
    cidr: ten
  - <<: *rule
    ports:
    - port: 80
    - port: 80000
`, wrong: []string{
			`a.yaml:6: ClusterPolicyEndpoint a: spec.tier: "admin" is no tier`,
			"a.yaml:8: ClusterPolicyEndpoint a: spec.priority: 1001 is not in 0..1000",
			`a.yaml:11: ClusterPolicyEndpoint a: spec.ingress[0].action: "deny" is no action`,
			`a.yaml:12: ClusterPolicyEndpoint a: spec.ingress[0].cidr: "ten" is no block of addresses`,
			`a.yaml:13: ClusterPolicyEndpoint a: spec.ingress[1].action: "deny" is no action`,
			`a.yaml:13: ClusterPolicyEndpoint a: spec.ingress[1].cidr: "ten" is no block of addresses`,
			"a.yaml:16: ClusterPolicyEndpoint a: spec.ingress[1].ports[1].port: 80000 is not in 0..65535",
		}},
		{name: "JSON", text: head + ` "egress": [{"cidr": "10.0.0.0/8",
   "except": ["11.0.0.0/8", "10.1.0.0/160"]}]}}`, wrong: []string{
			`a.yaml:3: PolicyEndpoint default/a: spec.podIsolation: "ingress" is no direction`,
			`a.yaml:5: PolicyEndpoint default/a: spec.egress[0].except[1]: "10.1.0.0/160" is no block of addresses`,
		}},
		{name: "host bits are allowed", text: `{"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "PolicyEndpoint", "metadata": {"name": "a"},
"spec": {"policyRef": {"name": "p"}, "egress": [{"cidr": "10.253.0.1/8"}, {"domainName": "a.b"}]}}`, ignored: []string{
			`a.yaml:1: PolicyEndpoint default/a: spec.egress[0]: "10.253.0.1/8" has bits set behind its prefix and is taken for 10.0.0.0/8`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Decode("a.yaml", []byte(tt.text))
			if len(c.Objects) != 1 || len(c.Problems) > 0 {
				t.Fatalf("objects %v, problems %v", c.Objects, c.Problems)
			}
			var wrong, ignored []string
			for _, p := range c.Objects[0].Wrong {
				wrong = append(wrong, p.String())
			}
			for _, p := range c.Ignored {
				ignored = append(ignored, p.String())
			}
			if diff := cmp.Diff(tt.wrong, wrong); diff != "" {
				t.Error("wrong: want -, have +:\n", diff)
			}
			if diff := cmp.Diff(tt.ignored, ignored); diff != "" {
				t.Error("ignored: want -, have +:\n", diff)
			}
		})
	}
}
