package stage

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
)

// Policy is a policy of both directions that selects the pods with label app=App, or others. Every version of it
// allows the outside on port Always, and on one of the version ports; none allows port Never.
type Policy struct {
	App     string            // its name, too
	Select  map[string]string // labels to select by in place of app=App
	Version int
	Peers   int // more peers beside the outside, other ones in every version
	// Multiplied are pairs of rules with ports of their own on blocks inside each other, which flatten to the
	// square of it.
	Multiplied int
}

// Write puts the policy in force, in place of other versions of it.
func (s *Stage) Write(p Policy) error {
	return s.Node.WriteManifest(p.file(), p.Manifest())
}

// Delete takes the policy away.
func (s *Stage) Delete(p Policy) error { return s.Node.RemoveManifest(p.file()) }

func (p Policy) file() string { return "policy-" + p.App + ".json" }

// Manifest is the policy and its endpoints, as the API server would hold them.
func (p Policy) Manifest() []byte {
	selector := object{"matchLabels": object{"app": p.App}}
	if p.Select != nil {
		selector["matchLabels"] = p.Select
	}
	meta := object{"namespace": Namespace, "name": p.App}
	rules := p.rules()
	var all []byte
	for _, o := range []object{
		{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta,
			"spec": object{"podSelector": selector, "policyTypes": []string{"Ingress", "Egress"}}},
		{"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "PolicyEndpoint", "metadata": object{"namespace": Namespace, "name": p.App + "-x"},
			"spec": object{"policyRef": meta, "podSelector": selector, "podIsolation": []string{"Ingress", "Egress"}, "ingress": rules, "egress": rules}},
	} {
		raw, err := json.Marshal(o)
		if err != nil {
			panic(fmt.Sprintf("stage: policy: %v", err))
		}
		all = append(append(append(all, "---\n"...), raw...), '\n')
	}
	return all
}

// known are rules that were made before, by what they depend on: policies of a kind are written by the
// thousand.
var known sync.Map

// rules are those of both directions.
func (p Policy) rules() json.RawMessage {
	key := [3]int{p.Version % 16, p.Peers, p.Multiplied}
	if raw, ok := known.Load(key); ok {
		return raw.(json.RawMessage)
	}
	rules := []object{{"cidr": ExtAddr.String(), "ports": []object{udp(Always), udp(Versions + p.Version%16)}}}
	for i := range p.Peers {
		rules = append(rules, object{"cidr": peer(p.Version, i).String(), "ports": []object{udp(Always)}})
	}
	for i := range p.Multiplied {
		rules = append(rules, object{"cidr": peer(0, i).String(), "ports": []object{udp(i)}},
			object{"cidr": "100.64.0.0/10", "ports": []object{{"protocol": "TCP", "port": 2 * i}}})
	}
	raw, err := json.Marshal(rules)
	if err != nil {
		panic(fmt.Sprintf("stage: policy: %v", err))
	}
	if p.Peers < 1000 {
		known.Store(key, json.RawMessage(raw))
	}
	return raw
}

func udp(port int) object { return object{"protocol": "UDP", "port": port} }

// peer is a prefix of 100.64.0.0/10 or above: a quarter of them stays from one version to the next.
func peer(version, i int) netip.Prefix {
	n := uint32(i)
	if i%4 != 0 {
		n += uint32(version%8) << 18
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0x64400000+n)
	return netip.PrefixFrom(netip.AddrFrom4(b), 32)
}
