package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
)

// firstRuleID is the lowest id of a source: 0 is the default, the rest below it is kept free.
const (
	firstRuleID RuleID = 256
	lastRuleID  RuleID = 1<<24 - 1
)

// identity is a source without what may change while it stays the same source. It is comparable.
func (s Source) identity() Source {
	s.ID, s.Rule = 0, 0
	return s
}

// compareRefs is the canonical order of policies.
func compareRefs(a, b PolicyRef) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name),
		strings.Compare(a.Kind, b.Kind),
	)
}

// compareSources is the order of evaluation. Of the sources that match a packet, the first one of
// a tier is the tier's answer, and the one that is named for it.
func compareSources(a, b *Source) int {
	if c := cmp.Or(
		cmp.Compare(a.Tier, b.Tier),
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.Action, b.Action),
	); c != 0 {
		return c
	}
	if c := compareRefs(a.Policy, b.Policy); c != 0 {
		return c
	}
	if c := strings.Compare(a.Ports, b.Ports); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Direction, b.Direction); c != 0 {
		return c
	}
	switch {
	case a.Isolation == b.Isolation:
		return 0
	case a.Isolation:
		return 1
	}
	return -1
}

// assignIDs gives every source its id. An id that two sources hash to goes to the one that comes
// first in the order of evaluation, the other takes the next free one.
func assignIDs(sources []*Source) {
	slices.SortFunc(sources, compareSources)
	taken := make(map[RuleID]struct{}, len(sources))
	for _, s := range sources {
		id := s.hash()
		for {
			if _, ok := taken[id]; !ok {
				break
			}
			if id++; id > lastRuleID {
				id = firstRuleID
			}
		}
		taken[id] = struct{}{}
		s.ID = id
	}
}

// hash is the id that a source has unless another one has it already.
func (s *Source) hash() RuleID {
	buf := make([]byte, 0, 128)
	for _, part := range []string{s.Policy.Kind, s.Policy.Namespace, s.Policy.Name, s.Ports} {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(part)))
		buf = append(buf, part...)
	}
	buf = binary.BigEndian.AppendUint64(buf, uint64(s.Priority))
	isolation := byte(0)
	if s.Isolation {
		isolation = 1
	}
	buf = append(buf, byte(s.Tier), byte(s.Direction), byte(s.Action), isolation)
	sum := sha256.Sum256(buf)
	n := binary.BigEndian.Uint64(sum[:8])
	return firstRuleID + RuleID(n%uint64(lastRuleID-firstRuleID+1))
}
