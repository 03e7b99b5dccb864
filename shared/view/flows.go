package view

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// Flow is one entry of the connection table: both directions of a flow, seen from the pod.
type Flow struct {
	Pod        string         `json:"pod"`    // namespace/name; empty if its pod is gone
	Opened     string         `json:"opened"` // ingress: towards the pod; egress: by the pod
	Protocol   string         `json:"protocol"`
	LocalPort  uint16         `json:"localPort"` // the pod's; of ICMP echo, the id
	Remote     netip.AddrPort `json:"remote"`
	State      string         `json:"state"`          // new (not answered), established or closing
	Idle       Seconds        `json:"idleSeconds"`    // since its last packet, to a second
	Expires    Seconds        `json:"expiresSeconds"` // if no packet comes
	Admitted   Decision       `json:"admitted"`       // by what
	Generation uint32         `json:"generation"`     // of the rules that admitted it
	Current    bool           `json:"current"`        // that is the generation in force; else the next packet has it judged again
	Exempt     bool           `json:"exempt"`         // the node's own traffic, or the pod's to itself
	Cut        bool           `json:"cut"`            // the rules in force deny it
	Adopted    bool           `json:"adopted"`        // met in mid-stream
	OtherLocal bool           `json:"otherLocal"`     // not from or to the pod's main address
}

// Seconds is a duration that JSON shows as a number of seconds.
type Seconds time.Duration

// MarshalJSON writes seconds with one decimal.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%.1f", time.Duration(s).Seconds()), nil
}

// owner is whose flows a pod id stands for.
type owner struct {
	pod   *Pod
	known sources
	slot  bpf.Slot
}

// Flows returns the live flows of some pods, in the order of pods, or all of the node for nil. An
// entry that has expired is no flow, although it is in the table until its place is needed.
func (n *Node) Flows(pods []Pod) ([]Flow, error) {
	k, err := n.objects()
	if err != nil {
		return nil, err
	}
	all := pods == nil
	if all {
		if pods, err = n.Pods(); err != nil {
			return nil, err
		}
	}
	owners := map[uint32]owner{}
	for i := range pods {
		p := &pods[i]
		h, _ := k.slot(p.Slot)
		for _, in := range p.Interfaces {
			owners[in.PodID] = owner{p, n.sources(*p), h}
		}
	}
	r := flowReader{now: bpf.Now(), timeouts: k.node.At(0).Timeouts, owners: owners, all: all}
	add4 := func(key bpf.FlowKey4, f bpf.Flow) {
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], key.Remote)
		r.add(key.Pod, netip.AddrFrom4(b), key.Lport, key.Rport, key.Proto, key.Local, f)
	}
	add6 := func(key bpf.FlowKey6, f bpf.Flow) {
		r.add(key.Pod, netip.AddrFrom16(key.Remote), key.Lport, key.Rport, key.Proto, key.Local, f)
	}
	// The spill tables hold what pods have beyond their share.
	err = errors.Join(each(k.maps["flows4"], add4), each(k.maps["spill4"], add4),
		each(k.maps["flows6"], add6), each(k.maps["spill6"], add6))
	slices.SortFunc(r.flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Idle, b.Idle), a.Remote.Compare(b.Remote),
			cmp.Compare(a.LocalPort, b.LocalPort))
	})
	return r.flows, err
}

type flowReader struct {
	now      uint32
	timeouts [8]uint32
	owners   map[uint32]owner
	all      bool
	flows    []Flow
}

func (r *flowReader) add(pod uint32, remote netip.Addr, lport, rport uint16, proto uint8, local uint16, f bpf.Flow) {
	o, known := r.owners[pod]
	idle, timeout := int32(r.now-f.Stamp), int32(bpf.FlowTimeout(&r.timeouts, proto, f.State))
	if (!known && !r.all) || idle > timeout {
		return
	}
	idle = max(idle, 0) // stamps of other CPUs may be ahead
	flow := Flow{
		Opened: policy.Direction(f.Dir).String(), Protocol: protocolName(policy.Protocol(proto)),
		LocalPort: bpf.NetPort(lport), Remote: netip.AddrPortFrom(remote, bpf.NetPort(rport)),
		State: stateName(f.State), Idle: seconds(idle), Expires: seconds(timeout - idle),
		Generation: f.Generation, Exempt: f.Flags&bpf.FlowExempt != 0, Cut: f.Flags&bpf.FlowCut != 0,
		Adopted: f.Flags&bpf.FlowGuessed != 0, OtherLocal: local != 0,
	}
	if known {
		flow.Pod, flow.Current = o.pod.Key(), f.Generation == o.slot.Generation
		flow.Admitted = o.known.decision(resultOf(f.Result))
	} else {
		flow.Admitted = sources(nil).decision(resultOf(f.Result))
	}
	r.flows = append(r.flows, flow)
}

func stateName(s uint8) string {
	switch s {
	case bpf.FlowNew:
		return "new"
	case bpf.FlowEstablished:
		return "established"
	}
	return "closing"
}

func seconds(stamps int32) Seconds { return Seconds(bpf.Duration(stamps)) }

// each calls fn for every element of a hash that changes meanwhile. An element may be missed or seen
// twice.
func each[K comparable, V any](m *ebpf.Map, fn func(K, V)) error {
	seen := map[K]bool{}
	return bpf.Batches(m, func(keys []K, values []V) error {
		for i, k := range keys {
			if !seen[k] {
				seen[k] = true
				fn(k, values[i])
			}
		}
		return nil
	})
}
