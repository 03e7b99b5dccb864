package policy

import (
	"net/netip"
	"slices"
)

// differing counts the prefixes whose entries differ between two sets of rules.
func differing(a, b *Rules, d Direction) int {
	n := 0
	old := make(map[netip.Prefix][]Breakpoint, len(a.Entries[d]))
	for _, e := range a.Entries[d] {
		old[e.Prefix] = e.Ports
	}
	for _, e := range b.Entries[d] {
		ports, ok := old[e.Prefix]
		if !ok || !slices.Equal(ports, e.Ports) {
			n++
		}
		delete(old, e.Prefix)
	}
	return n + len(old)
}
