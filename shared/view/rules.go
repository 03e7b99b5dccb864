package view

import (
	"errors"
	"fmt"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// Rule is one line of a slot's flattened rules: what one prefix says about some ports. Of the prefixes
// around an address the longest decides alone.
type Rule struct {
	Direction string `json:"direction"`        // ingress or egress, the pod's view
	Prefix    string `json:"prefix,omitempty"` // empty: every address that no other line names
	// Ports as "TCP/80", "TCP/8000-8999", "UDP" (all of it), "protocol 47"; "all"; or "other": what
	// no other line of the same prefix names.
	Ports []string `json:"ports"`
	Decision
}

// Ports of a Rule that are not a list.
const (
	PortsAll   = "all"
	PortsOther = "other"
)

// ErrBusy says that the rules change too fast to be read whole.
var ErrBusy = errors.New("rules are being changed")

// content is a slot's rules as the kernel holds them.
type content struct {
	rules      *policy.Rules
	known      sources
	slot       uint32
	generation uint32
}

// Rules returns the rules that the kernel judges a pod by, ingress first, in the order of addresses.
func (n *Node) Rules(p Pod) ([]Rule, error) {
	c, err := n.content(p)
	if err != nil {
		return nil, err
	}
	var lines []Rule
	for _, d := range policy.Directions {
		for _, e := range c.rules.Entries[d] {
			lines = append(lines, linesOf(d, e, c.known)...)
		}
		lines = append(lines, Rule{Direction: d.String(), Ports: []string{PortsAll}, Decision: c.known.decision(c.rules.OnMiss[d])})
	}
	return lines, nil
}

// content reads the slot of a pod. A result counts only if its hash is the one in the slot's header,
// before and after: then no writer came between. The hash of a default slot is zero.
func (n *Node) content(p Pod) (content, error) {
	k, err := n.objects()
	if err != nil {
		return content{}, err
	}
	var c content
	proved := false
	err = fmt.Errorf("read rules of slot %d: %w", p.Slot, ErrBusy)
	settle(func() bool {
		read, ok, readErr := k.read(p.Slot)
		if readErr != nil {
			err = readErr
		}
		c, proved = read, ok && readErr == nil
		return proved
	})
	if !proved {
		return content{}, err
	}
	c.known = n.sources(p)
	return c, nil
}

func (k *kernel) read(slot uint32) (c content, proved bool, err error) {
	h, ok := k.slot(slot)
	if !ok {
		return c, false, fmt.Errorf("read rules: the kernel has no slot %d", slot)
	}
	read, err := k.tables.Read(slot)
	if err != nil {
		return c, false, err
	}
	after, _ := k.slot(slot)
	if after.RulesHash != h.RulesHash || after.Generation != h.Generation {
		return c, false, nil
	}
	c = content{rules: read.Rules, slot: slot, generation: h.Generation}
	none := [32]byte{}
	empty := len(read.Rules.Entries[0])+len(read.Rules.Entries[1]) == 0
	return c, read.Rules.Hash() == h.RulesHash || (h.RulesHash == none && empty && slot < bpf.FirstSlot), nil
}

// sources are what the record of the pod's identifier says of the slot's rule ids.
func (n *Node) sources(p Pod) sources {
	rec, err := n.store.ReadIdentifier(identity.Identifier(p.Identifier))
	if err != nil {
		return nil
	}
	ref, _ := refOf(rec, p.Slot)
	return sourcesOf(ref)
}

// linesOf turns one entry into lines: one for each result, the one that holds for most ports last.
func linesOf(d policy.Direction, e policy.Entry, known sources) []Rule {
	line := func(r policy.Result, ports ...string) Rule {
		return Rule{Direction: d.String(), Prefix: e.Prefix.String(), Ports: ports, Decision: known.decision(r)}
	}
	if len(e.Ports) == 1 {
		return []Rule{line(e.Ports[0].Result, PortsAll)}
	}
	rest := e.Ports[0].Result // port key 0 is no traffic's: it lies in what no rule names
	ports := map[policy.Result][]string{}
	var order []policy.Result
	for i, b := range e.Ports {
		if b.Result == rest {
			continue
		}
		last := uint32(portKeyMax)
		if i+1 < len(e.Ports) {
			last = e.Ports[i+1].Start - 1
		}
		if ports[b.Result] == nil {
			order = append(order, b.Result)
		}
		ports[b.Result] = append(ports[b.Result], spans(b.Start, last)...)
	}
	var lines []Rule
	for _, r := range order {
		lines = append(lines, line(r, ports[r]...))
	}
	return append(lines, line(rest, PortsOther))
}

const (
	portKeyMax = 0x00ffffff
	portMask   = 0xffff
)

// spans names an interval of port keys: part of a protocol, whole protocols, part of a protocol.
func spans(first, last uint32) []string {
	var names []string
	for first <= last {
		proto := first >> 16
		end := min(last, proto<<16|portMask)
		whole := first&portMask == 0 && end&portMask == portMask
		if !whole {
			names = append(names, portRange(policy.Protocol(proto), first&portMask, end&portMask))
			first = end + 1
			continue
		}
		until := proto // of whole protocols in a row
		for until < 255 && (until+2)<<16-1 <= last {
			until++
		}
		names = append(names, protocols(proto, until))
		first = (until + 1) << 16
	}
	return names
}

func portRange(p policy.Protocol, first, last uint32) string {
	if first == last {
		return fmt.Sprintf("%s/%d", protocolName(p), first)
	}
	return fmt.Sprintf("%s/%d-%d", protocolName(p), first, last)
}

func protocols(first, last uint32) string {
	if first == last {
		return protocolName(policy.Protocol(first))
	}
	return fmt.Sprintf("protocols %d-%d", first, last)
}
