package view

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

// State is how a pod stands.
type State string

// States.
const (
	StateEnforced     State = "enforced"      // judged by the rules of its policies
	StateDefaultAllow State = "default-allow" // nothing is known about it, it is open
	StateDefaultDeny  State = "default-deny"  // nothing is known about it, it is closed
	StatePrepared     State = "prepared"      // known and its rules are in the kernel, no interface yet
	StateExpected     State = "expected"      // known, its rules are not in the kernel
	StateNotAdopted   State = "not-adopted"   // it runs without policy: it was there before Latch, see Problems
	StateBroken       State = "not-in-force"  // what is recorded is not what the kernel does: see Problems
)

// Pod is one attachment of a pod, or a pod that is expected.
type Pod struct {
	Namespace   string      `json:"namespace"`
	Name        string      `json:"name"`
	UID         string      `json:"uid,omitempty"`
	ContainerID string      `json:"containerID,omitempty"` // none before ADD
	IfName      string      `json:"ifName,omitempty"`
	Identifier  string      `json:"identifier"`
	State       State       `json:"state"`
	Healthy     bool        `json:"healthy"` // the kernel does what is recorded
	Problems    []Problem   `json:"problems,omitempty"`
	Slot        uint32      `json:"slot"`               // of the kernel's rules
	Generation  uint32      `json:"generation"`         // of the slot, in the kernel
	Policies    []Policy    `json:"policies"`           // that select the pod
	Pending     []Policy    `json:"pending,omitempty"`  // of these: what they allow is not known
	Settling    []Policy    `json:"settling,omitempty"` // of these: running pods wait for the rest of them
	Ingress     Side        `json:"ingress"`
	Egress      Side        `json:"egress"`
	Since       *time.Time  `json:"since,omitempty"` // the rules are in force
	Interfaces  []Interface `json:"interfaces,omitempty"`
}

// Side says what a direction does with an address that no rule names.
type Side struct {
	Isolated bool     `json:"isolated"` // by a NetworkPolicy
	Default  Decision `json:"default"`
}

// String is isolated, open or closed.
func (s Side) String() string {
	switch {
	case s.Isolated:
		return "isolated"
	case s.Default.Verdict == policy.Allow.String():
		return "open"
	}
	return "closed"
}

// Interface is one host interface of a pod.
type Interface struct {
	Name    string     `json:"name"`
	Ifindex int        `json:"ifindex"`
	PodID   uint32     `json:"podID"` // owner of its flows
	Addr4   netip.Addr `json:"addr4,omitzero"`
	Addr6   netip.Addr `json:"addr6,omitzero"`
	Bound   bool       `json:"bound"`          // it has a pod_state
	Guarded bool       `json:"antiSpoof"`      // what it sends from other addresses is dropped
	Slot    *uint32    `json:"slot,omitempty"` // in its pod_state
	ToPod   Hook       `json:"toPod"`          // what it is sent: the pod's ingress
	FromPod Hook       `json:"fromPod"`        // what it sends: the pod's egress
}

// Hook is what the kernel runs on one side of an interface.
type Hook struct {
	Attached  bool     `json:"attached"`
	Effective bool     `json:"effective"` // nothing in front of it can let packets by
	Mode      string   `json:"mode,omitempty"`
	Program   uint32   `json:"program,omitempty"` // id
	Ahead     []string `json:"ahead,omitempty"`
}

// Key is "namespace/name".
func (p Pod) Key() string { return p.Namespace + "/" + p.Name }

// Guarded tells whether the pod sends from its own addresses only, on all interfaces.
func (p Pod) Guarded() bool {
	return len(p.Interfaces) > 0 && !slices.ContainsFunc(p.Interfaces, func(in Interface) bool { return !in.Guarded })
}

// Addrs are the addresses of all interfaces.
func (p Pod) Addrs() []netip.Addr {
	var all []netip.Addr
	for _, in := range p.Interfaces {
		for _, a := range []netip.Addr{in.Addr4, in.Addr6} {
			if a.IsValid() {
				all = append(all, a)
			}
		}
	}
	return all
}

// Pods returns every attachment of the node, and the pods that are expected, by name. It returns the
// readable ones even with an error, which names the records that are not.
func (n *Node) Pods() ([]Pod, error) {
	records := n.records()
	pods := n.settled(records.attachments)
	attached := map[string]bool{}
	for _, p := range pods {
		attached[p.Key()] = true
	}
	unadopted := n.unadopted()
	for _, r := range records.pods {
		if attached[r.Namespace+"/"+r.Name] {
			continue
		}
		p := n.expected(r)
		if reason := unadopted[p.Key()]; reason != "" {
			p.State, p.Healthy, p.Problems = StateNotAdopted, false, []Problem{{Kind: KindNotAdopted, Message: "runs without policy, and was not adopted: " + reason}}
		}
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.IfName, b.IfName))
	})
	return pods, errors.Join(records.unreadable...)
}

// unadopted are the reasons for which pods that run were not adopted, as latchd has said.
func (n *Node) unadopted() map[string]string {
	reasons := map[string]string{}
	if said, err := n.store.ReadStatus(); err == nil { // else Status tells
		for _, p := range said.NotAdopted {
			reasons[p.Namespace+"/"+p.Name] = p.Reason
		}
	}
	return reasons
}

// Pod returns the attachments of one pod: more than one if it has several interfaces by several
// attachments, or if an old sandbox of it is still there. The error is ErrNoPod if there is none.
func (n *Node) Pod(namespace, name string) ([]Pod, error) {
	all, err := n.Pods()
	all = slices.DeleteFunc(all, func(p Pod) bool { return p.Namespace != namespace || p.Name != name })
	if len(all) == 0 {
		return nil, errors.Join(fmt.Errorf("%w: %s/%s", ErrNoPod, namespace, name), err)
	}
	return all, nil
}

// records are what the store holds.
type records struct {
	attachments []state.Attachment
	identifiers []state.IdentifierRecord
	pods        []state.PodRecord
	unreadable  []error
}

func (n *Node) records() records {
	var r records
	var errs [3]error
	r.attachments, errs[0] = n.store.ListAttachments()
	r.identifiers, errs[1] = n.store.ListIdentifiers()
	r.pods, errs[2] = n.store.ListPods()
	for _, err := range errs {
		if err != nil {
			r.unreadable = append(r.unreadable, err)
		}
	}
	return r
}
