package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// The structs of types.h.
type (
	PodState   = latchPodState
	Slot       = latchSlot
	RuleKey4   = latchRuleKey4
	RuleKey6   = latchRuleKey6
	RuleVal    = latchRuleVal
	Breakpoint = latchBreakpoint
	PortBlock  = latchPortBlock
	FlowKey4   = latchFlowKey4
	FlowKey6   = latchFlowKey6
	Flow       = latchFlow
	Share      = latchShare
	Quota      = latchQuota
	FragKey    = latchFragKey
	Frag       = latchFrag
	Node       = latchNode
	NodeAddr   = latchNodeAddr
	CounterKey = latchCounterKey
	Event      = latchEvent
	TableCount = latchTableCount
	TableEnd   = latchTableEnd
)

// Sizes and versions, as in types.h.
const (
	Layout        = 1
	MaxSlots      = 4096
	PodStateSize  = 65536
	MaxCounters   = 4096
	BlockSize     = 32 // PORT_BLOCK: breakpoints in a PortBlock
	MaxPrefixLens = 4

	SlotDefaultAllow = 0
	SlotDefaultDeny  = 1
	FirstSlot        = 2

	PortKeyMax = 0x00ffffff
)

// Direction of traffic in the pod's view, and family.
const (
	Ingress = 0
	Egress  = 1

	V4 = 0
	V6 = 1
)

// Bits of a result.
const (
	ResRuleMask = 0x00ffffff
	ResAllow    = 0x01000000
	ResSet      = 0x02000000
)

// Flags of PodState, Slot, Flow and Node.
const (
	PodAntispoof = 0x1

	SlotUsed     = 0x1
	SlotComplete = 0x2

	FlowExempt    = 0x1
	FlowFinLocal  = 0x2
	FlowFinRemote = 0x4
	FlowCut       = 0x8
	FlowGuessed   = 0x10

	NodeAddressIsNode = 0x1
	NodeJudgeToNode   = 0x2
	NodeEventsDeny    = 0x4
	NodeEventsAllow   = 0x8
)

// Values of CounterKey.Slot that are no slots.
const (
	CounterLostEvents = 0xffffffff
	CounterNoSlot     = 0xfffffffe
)

// States of a flow.
const (
	FlowNew = iota
	FlowEstablished
	FlowClosing
)

// Indexes of Node.Timeouts.
const (
	TimeoutTCPSyn = iota
	TimeoutTCPEstablished
	TimeoutTCPClosing
	TimeoutUDP
	TimeoutUDPAnswered
	TimeoutOther
	TimeoutFragment
	TimeoutGrace
)

// Table is one in which Linux makes room by pushing out entries.
type Table uint32

// Tables.
const (
	TableFlows4 Table = iota
	TableFlows6
	TableSpill4
	TableSpill6
	TableFrags
	TableFragSpill
	tableMax
)

var tables = [tableMax]string{
	latchMapFlows4, latchMapFlows6, latchMapSpill4, latchMapSpill6, latchMapFrags, latchMapFragSpill,
}

// String is the name of the table's map.
func (t Table) String() string { return tables[t] }

// End is why latchd took an entry out of a table.
type End uint8

// Ends; types.h says what each means.
const (
	EndExpired End = iota
	EndClosed
	EndCut
	EndCrowded
	EndPodGone
	endMax
)

var ends = [endMax]string{"expired", "closed", "policy", "crowded", "pod-gone"}

// String is its name in metrics.
func (e End) String() string { return ends[e] }

// Reason is why a packet got its verdict.
type Reason uint8

// Reasons; types.h says what each means.
const (
	ReasonPolicy Reason = iota
	ReasonFlow
	ReasonNode
	ReasonHairpin
	ReasonReply
	ReasonRelated
	ReasonLink
	ReasonNoState
	ReasonIncomplete
	ReasonMalformed
	ReasonFragment
	ReasonEthertype
	ReasonCut
	ReasonSpoof
	ReasonTableFull
	ReasonOverShare
	reasonMax
)

var reasons = [reasonMax]string{
	"policy", "flow", "node", "hairpin", "reply", "related", "link", "no-state", "incomplete",
	"malformed", "fragment", "ethertype", "cut", "spoof", "table-full", "over-share",
}

// String is the reason's name in logs, metrics and the CLI.
func (r Reason) String() string {
	if r < reasonMax {
		return reasons[r]
	}
	return fmt.Sprintf("reason-%d", uint8(r))
}

// Stamp is a duration in the units of stamps and timeouts (16.8 ms), rounded up.
func Stamp(d time.Duration) uint32 {
	const unit = 1 << stampShift
	return uint32((d + unit - 1) >> stampShift)
}

// Now is the time of the programs' clock.
func Now() uint32 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("read monotonic clock: " + err.Error()) // no kernel refuses it
	}
	return uint32(ts.Nano() >> stampShift)
}

const stampShift = 24

// FlowTimeout is how long after its last packet a flow is known: timeout_of in flow.h.
func FlowTimeout(timeouts *[8]uint32, proto, state uint8) uint32 {
	switch {
	case proto == unix.IPPROTO_TCP:
		return timeouts[TimeoutTCPSyn+int(min(state, FlowClosing))]
	case proto == unix.IPPROTO_UDP && state == FlowNew:
		return timeouts[TimeoutUDP]
	case proto == unix.IPPROTO_UDP:
		return timeouts[TimeoutUDPAnswered]
	}
	return timeouts[TimeoutOther]
}

// IsOver tells whether a flow has expired. Stamps of other CPUs may be ahead of now.
func (f *Flow) IsOver(now uint32, timeouts *[8]uint32, proto uint8) bool {
	return int32(now-f.Stamp) > int32(FlowTimeout(timeouts, proto, f.State))
}

// EndedBy tells why a flow has ended that is over.
func (f *Flow) EndedBy() End {
	switch {
	case f.Flags&FlowCut != 0:
		return EndCut
	case f.State == FlowClosing:
		return EndClosed
	}
	return EndExpired
}

// IsOver tells whether what a first fragment got is no longer remembered.
func (f *Frag) IsOver(now uint32, timeouts *[8]uint32) bool {
	return int32(now-f.Stamp) > int32(timeouts[TimeoutFragment])
}

// Addr4 is an IPv4 address as the programs hold it: in network order. 0 if a is no IPv4 address.
func Addr4(a netip.Addr) uint32 {
	if !a.Is4() {
		return 0
	}
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

// NewRuleKey4 is the key of an IPv4 prefix.
func NewRuleKey4(p netip.Prefix) RuleKey4 {
	p = p.Masked()
	return RuleKey4{Plen: uint32(p.Bits()), Addr: Addr4(p.Addr())}
}

// NewRuleKey6 is the key of an IPv6 prefix.
func NewRuleKey6(p netip.Prefix) RuleKey6 {
	p = p.Masked()
	return RuleKey6{Plen: uint32(p.Bits()), Addr: p.Addr().As16()}
}

// NewNodeAddr is the key of one of the node's addresses.
func NewNodeAddr(a netip.Addr) NodeAddr { return NodeAddr{Addr: a.As16()} }

// NetPort is a port in network order, as keys of flows and events hold it.
func NetPort(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

// LensWord is the word of Slot.Lens for up to MaxPrefixLens prefix lengths, longest first.
func LensWord(lens ...int) uint32 {
	var w uint32
	for i, l := range lens {
		w |= uint32(l+1) << (8 * i)
	}
	return w
}
