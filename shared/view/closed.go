package view

import (
	"fmt"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"

	"github.com/latch-cni/latch/shared/attach"
)

// Closed are the interfaces that run our programs and are bound to no rules, and of which no record tells whose
// they are: everything is dropped there, and nobody is about to change it. One whose pod is on its way out is so
// from DEL until the runtime ends it, which only time tells apart from one whose records are lost.
func (n *Node) Closed() (found []Problem, err error) {
	if n.kernel == nil {
		return nil, nil
	}
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	recorded := map[int]bool{}
	for _, a := range n.records().attachments {
		for _, in := range a.Interfaces {
			recorded[in.Ifindex] = true
		}
	}
	for _, l := range links {
		index := l.Attrs().Index
		if _, bound, err := n.kernel.podState(index); err != nil || bound || recorded[index] {
			continue
		}
		if slices.ContainsFunc(attach.Sides[:], func(side attach.Side) bool {
			s, err := attach.Query(index, side, n.kernel.progs[side])
			return err == nil && s.ProgID != 0
		}) {
			found = append(found, Problem{KindOrphan, l.Attrs().Name, fmt.Sprintf("the interface (index %d) runs our programs, but is bound to no rules: everything is dropped. "+
				"No record tells whose it is: start its pod again, or let latchd know the pod's addresses (status.podIP), by which it finds it", index)})
		}
	}
	return found, nil
}
