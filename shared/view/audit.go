package view

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/foreign"
	"github.com/latch-cni/latch/shared/identity"
)

// Report is what an audit looked at and found.
type Report struct {
	Attachments int       `json:"attachments"`
	Interfaces  int       `json:"interfaces"`
	Slots       int       `json:"slots"` // whose rules were read and compared with their hash
	Problems    []Problem `json:"problems"`
	Watcher     Watcher   `json:"watcher"`
}

// Audit compares everything that is recorded with the kernel, and looks for what no record knows. It
// changes nothing.
func (n *Node) Audit() (Report, error) {
	r := Report{Problems: []Problem{}}
	var s Status
	if err := n.watcher(&s); err != nil {
		r.add(KindWatcher, "", "%v", err)
	}
	r.Watcher = s.Watcher
	pods, unreadable := n.Pods()
	if unreadable != nil {
		r.add(KindRecord, "", "%v", unreadable)
	}
	if agent, err := foreign.Find(n.bpffs); err != nil || agent.Active() {
		r.add(KindForeign, foreign.AgentName, "%s", errors.Join(err, foreign.Refuse(agent)))
	}
	if len(pods) == 0 && len(n.layouts) == 0 {
		r.add(KindPin, n.pins.Root(), "nothing is pinned and no pod is recorded in %s: Latch does not run on this node, "+
			"or has other directories (--bpffs, --state-dir)", n.store.Dir())
		return r, nil
	}
	for _, path := range n.missing {
		r.add(KindPin, path, "missing")
	}
	n.strangers(&r)
	podIDs, slots := map[uint32]bool{}, map[uint32]Pod{}
	for _, p := range pods {
		for _, problem := range p.Problems {
			problem.Object = join(p.Key(), problem.Object)
			r.Problems = append(r.Problems, problem)
		}
		if p.ContainerID == "" {
			continue
		}
		r.Attachments++
		r.Interfaces += len(p.Interfaces)
		for _, in := range p.Interfaces {
			podIDs[in.PodID] = true
		}
		slots[p.Slot] = p
	}
	if n.kernel == nil {
		return r, nil
	}
	for slot, p := range slots {
		if _, err := n.content(p); err != nil {
			r.add(KindRules, fmt.Sprintf("slot %d", slot), "its rules are not those of its hash: %v", err)
			continue
		}
		r.Slots++
	}
	n.orphans(&r, podIDs)
	return r, nil
}

func (r *Report) add(kind, object, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{kind, object, fmt.Sprintf(format, args...)})
}

func join(pod, object string) string {
	if object == "" {
		return pod
	}
	return pod + " " + object
}

// orphans are bindings, links and slots that no record knows. A writer makes the record first and
// deletes it last, so none is there only for a moment.
func (n *Node) orphans(r *Report, podIDs map[uint32]bool) {
	k := n.kernel
	for i := range k.pods.Len() {
		p := k.pods.At(i)
		if index := atomic.LoadUint32(&p.Ifindex); index != 0 && index != claimed && !podIDs[p.Pod] {
			r.add(KindOrphan, fmt.Sprintf("pod_state of device %d", index), "pod id %d, slot %d: no attachment is recorded", p.Pod, p.Slot)
		}
	}
	var index uint32
	var hashed bpf.PodState
	it := k.maps["pod_state_hash"].Iterate()
	for it.Next(&index, &hashed) {
		if !podIDs[hashed.Pod] {
			r.add(KindOrphan, fmt.Sprintf("pod_state of device %d", index), "pod id %d, slot %d: no attachment is recorded", hashed.Pod, hashed.Slot)
		}
	}
	links, err := n.pins.Links()
	if err := errors.Join(err, it.Err()); err != nil {
		r.add(KindOrphan, "", "%v", err)
	}
	for _, path := range links {
		var id uint32
		if _, err := fmt.Sscanf(filepath.Base(path), "%d_", &id); err != nil || !podIDs[id] {
			r.add(KindOrphan, path, "link of no recorded attachment")
		}
	}
	n.orphanSlots(r)
}

// claimed is in the ifindex of a pod_state that is being written: see shared/enforce.
const claimed = 0xffffffff

func (n *Node) orphanSlots(r *Report) {
	recorded := map[identity.Identifier]bool{}
	for _, rec := range n.records().identifiers {
		recorded[rec.Identifier] = true
	}
	for i := uint32(bpf.FirstSlot); i < bpf.MaxSlots; i++ {
		h, _ := n.kernel.slot(i)
		id := identity.Identifier(hex.EncodeToString(h.Identifier[:]))
		if h.Flags&bpf.SlotUsed != 0 && !recorded[id] {
			r.add(KindOrphan, fmt.Sprintf("slot %d", i), "taken by identifier %s, which has no record", id)
		}
	}
}
