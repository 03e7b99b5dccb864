package cluster

import (
	"fmt"
	"net/netip"
)

// policy is a NetworkPolicy that isolates ingress, and its endpoints object as a controller writes it.
type policy struct {
	n        *node
	name     string
	selector object
	peers    []object // of the endpoints object
	listed   []object // podSelectorEndpoints
	uid      string
}

// newPolicy makes a policy for the pods with a label. Nothing is created yet.
func (n *node) newPolicy(name string, selector object) *policy {
	return &policy{n: n, name: name, selector: selector, peers: []object{}, listed: []object{}}
}

// from allows addresses to a TCP port.
func (p *policy) from(port int, addrs ...netip.Addr) *policy {
	for _, a := range addrs {
		p.peers = append(p.peers, object{"cidr": a.String(), "ports": []object{{"protocol": "TCP", "port": port}}})
	}
	return p
}

// lists names pods as selected, as far as they have addresses.
func (p *policy) lists(pods ...*pod) *policy {
	p.listed = []object{}
	for _, q := range pods {
		p.listed = append(p.listed, object{"name": q.name, "namespace": p.n.ns, "podIP": q.addrs[0].String(), "hostIP": nodeAddrs[0].String()})
	}
	return p
}

func (p *policy) path() string {
	return resourcePath("networking.k8s.io/v1", "NetworkPolicy", p.n.ns) + "/" + p.name
}

func (p *policy) endpointPath() string {
	return resourcePath("networking.k8s.aws/v1alpha1", "PolicyEndpoint", p.n.ns) + "/" + p.name + "-x7k2p"
}

// apply writes both objects: the policy first, then what the controller makes of it.
func (p *policy) apply() *policy {
	p.n.t.Helper()
	p.applyPolicy()
	p.applyEndpoint()
	return p
}

func (p *policy) applyPolicy() {
	p.n.t.Helper()
	var out struct{ Metadata struct{ UID string } }
	p.n.must(p.n.apply(object{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": object{"name": p.name, "namespace": p.n.ns},
		"spec":     object{"podSelector": object{"matchLabels": p.selector}, "policyTypes": []string{"Ingress"}}}))
	p.n.must(p.n.cp.get(p.path(), &out))
	p.uid = out.Metadata.UID
}

func (p *policy) applyEndpoint() {
	p.n.t.Helper()
	p.n.must(p.tryApplyEndpoint())
}

func (p *policy) tryApplyEndpoint() error {
	return p.n.apply(object{"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "PolicyEndpoint",
		"metadata": object{"name": p.name + "-x7k2p", "namespace": p.n.ns, "ownerReferences": []object{{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "name": p.name, "uid": p.uid}}},
		"spec": object{"policyRef": object{"name": p.name, "namespace": p.n.ns},
			"podSelector": object{"matchLabels": p.selector}, "podIsolation": []string{"Ingress"},
			"podSelectorEndpoints": p.listed, "ingress": p.peers}})
}

// remove deletes both objects: the endpoints object is collected after its policy.
func (p *policy) remove() {
	p.n.t.Helper()
	p.n.must(p.n.cp.remove(p.path()))
	p.n.must(p.n.cp.remove(p.endpointPath()))
}

// selects edits the policy's selector. The endpoints object keeps its copy, as the controller leaves it.
func (p *policy) selects(labels object) {
	p.n.t.Helper()
	p.n.must(p.n.cp.do("PUT", p.path(), "application/json", object{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": object{"name": p.name, "namespace": p.n.ns},
		"spec":     object{"podSelector": object{"matchLabels": labels}, "policyTypes": []string{"Ingress"}}}, nil))
}

// clusterPolicy is a cluster policy that denies ingress to the pods of namespaces with a label.
func (n *node) applyClusterPolicy(name string, namespaces object) (remove func()) {
	n.t.Helper()
	subject := object{"namespaces": object{"matchLabels": namespaces}}
	policy := object{"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "ClusterNetworkPolicy", "metadata": object{"name": name},
		"spec": object{"tier": "Admin", "priority": 10, "subject": subject,
			"ingress": []object{{"action": "Deny", "name": "all", "from": []object{{"namespaces": object{}}}}}}}
	endpoint := object{"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "ClusterPolicyEndpoint", "metadata": object{"name": name + "-q9w4r"},
		"spec": object{"policyRef": object{"name": name}, "tier": "Admin", "priority": 10, "subject": subject,
			"ingress": []object{{"action": "Deny", "cidr": "0.0.0.0/0"}, {"action": "Deny", "cidr": "::/0"}}}}
	n.must(n.cp.apply(policy))
	n.must(n.cp.apply(endpoint))
	return func() {
		n.t.Helper()
		n.must(n.cp.remove(pathOf(policy)))
		n.must(n.cp.remove(pathOf(endpoint)))
	}
}

// labelNamespace changes labels of the test's namespace; nil takes one away.
func (n *node) labelNamespace(labels object) {
	n.t.Helper()
	n.must(n.cp.merge(fmt.Sprintf("/api/v1/namespaces/%s", n.ns), object{"metadata": object{"labels": labels}}))
}
