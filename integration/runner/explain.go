package runner

import (
	"fmt"

	"github.com/latch-cni/latch/cmd/latchd/manifest"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/integration/probe"
	"github.com/latch-cni/latch/integration/scenario"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// Explain tells what the compiler's explanation says about both ends of a cell: the egress side of its
// source, then the ingress side of its destination. It asks about the manifests of the state alone, so
// an explanation that contradicts the packets points at the kernel side, and one that agrees with them
// at selection or meaning.
func Explain(st scenario.State, cell scenario.Cell) string {
	egress, err := explainEnd(st, cell, policy.Egress)
	if err != nil {
		return "no explanation: " + err.Error()
	}
	ingress, err := explainEnd(st, cell, policy.Ingress)
	if err != nil {
		return "no explanation: " + err.Error()
	}
	return fmt.Sprintf("%s %s\n%s %s", cell.From, egress, cell.To, ingress)
}

func explainEnd(st scenario.State, cell scenario.Cell, d policy.Direction) (policy.Explanation, error) {
	from, to := podOf(st, cell.From), podOf(st, cell.To)
	local, remote := from, to.IP
	if d == policy.Ingress {
		local, remote = to, from.IP
	}
	in, err := inputOf(st, local)
	if err != nil {
		return policy.Explanation{}, err
	}
	proto, err := probe.ParseProto(cell.Target.Protocol)
	if err != nil {
		return policy.Explanation{}, err
	}
	return policy.Explain(in, d, remote, policy.Protocol(proto), cell.Target.Port), nil
}

// inputOf is what latchd would compile for a pod that is being created in the state.
func inputOf(st scenario.State, p scenario.Pod) (policy.Input, error) {
	const node = "node"
	docs, err := st.Documents(node)
	if err != nil {
		return policy.Input{}, err
	}
	w := world.New(world.Options{NodeName: node, NodeIPs: nodeAddrs})
	for _, o := range manifest.Decode("state", scenario.Join(docs)).Objects {
		w.Upsert(o.Object)
	}
	w.Synced()
	desired, found := w.Desired(identity.Of(p.Namespace, p.Labels))
	if !found {
		return policy.Input{}, fmt.Errorf("pod %s is not known", p.Key())
	}
	return desired.Create, nil
}

func podOf(st scenario.State, key string) scenario.Pod {
	for _, p := range st.Pods {
		if p.Key() == key {
			return p
		}
	}
	return scenario.Pod{}
}
