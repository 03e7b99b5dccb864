package policy

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// lastPortKey is the highest key that PortKey can give.
const lastPortKey = 0xffffff

// span is an inclusive range of port keys. Outside of everySpan it stays within one protocol.
type span struct{ first, last uint32 }

// everySpan is every protocol and port.
var everySpan = []span{{0, lastPortKey}}

// canonicalSpans sorts a list of ports and merges what overlaps or touches within a protocol.
// Ranges that end before they start are dropped.
func canonicalSpans(ports []Ports) []span {
	all := make([]span, 0, len(ports))
	for _, p := range ports {
		if p.First <= p.Last {
			all = append(all, span{PortKey(p.Protocol, p.First), PortKey(p.Protocol, p.Last)})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	out := all[:0]
	for _, s := range all {
		if n := len(out); n > 0 {
			prev := &out[n-1]
			if prev.first>>16 == s.first>>16 && s.first <= prev.last+1 {
				prev.last = max(prev.last, s.last)
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

// spansText writes canonical spans as in "TCP/80,TCP/8000-8080,UDP".
func spansText(spans []span) string {
	var b strings.Builder
	for i, s := range spans {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(Protocol(s.first >> 16).String())
		first, last := s.first&0xffff, s.last&0xffff
		if first == 0 && last == 0xffff {
			continue
		}
		b.WriteByte('/')
		b.WriteString(strconv.Itoa(int(first)))
		if last != first {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(int(last)))
		}
	}
	return b.String()
}

// portList is the canonical form of the ports of a rule. Its text is its identity: "" = all.
type portList struct {
	index int
	text  string
	spans []span
}

// portLists interns port lists, first by their raw form so that the canonical form is computed
// once for the many rules that repeat it.
type portLists struct {
	raw       map[string]*portList
	canonical map[string]*portList
	buf       []byte
}

func newPortLists() *portLists {
	return &portLists{
		raw:       make(map[string]*portList),
		canonical: map[string]*portList{"": {spans: everySpan}},
	}
}

// of returns the list of a rule, or nil if the rule matches no port at all.
func (l *portLists) of(r *Rule) *portList {
	if r.AllPorts {
		return l.canonical[""]
	}
	l.buf = l.buf[:0]
	for _, p := range r.Ports {
		l.buf = append(l.buf, byte(p.Protocol))
		l.buf = binary.BigEndian.AppendUint16(l.buf, p.First)
		l.buf = binary.BigEndian.AppendUint16(l.buf, p.Last)
	}
	if list, ok := l.raw[string(l.buf)]; ok {
		return list
	}
	list := l.intern(canonicalSpans(r.Ports))
	l.raw[string(l.buf)] = list
	return list
}

func (l *portLists) intern(spans []span) *portList {
	if len(spans) == 0 {
		return nil
	}
	text := spansText(spans)
	list, ok := l.canonical[text]
	if !ok {
		list = &portList{index: len(l.canonical), text: text, spans: spans}
		l.canonical[text] = list
	}
	return list
}
