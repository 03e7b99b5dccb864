package rules

import (
	"net/netip"
	"slices"

	"github.com/latch-cni/latch/shared/policy"
)

// whole tells whether every packet gets the verdict of the old or of the new rules while ops are written, whatever
// they are interrupted by. The look of a packet at a slot is many reads: which prefix lengths are present, a prefix
// in the hash after the other, from long to short, the trie, from short to long, the result of a miss. Between any
// two of them its CPU may be interrupted, a virtual one for milliseconds, and all of the writes come in between. So a
// look, which is about one address, direction and family, must depend on one write at most:
//
//   - no prefix that is written contains another one that is written in the same direction;
//   - where the result of a miss changes, which stands for all prefixes of both families, no other is written.
//
// The words of present prefix lengths do no harm: they always name the lengths of what is old and new, and who
// does not see a length that comes sees its prefix as before.
//
// The programs also look at all these words of both directions and families for whether any policy bears on a slot
// (is_open): if it does by the old rules and by the new ones, then by every mixture of their words, too.
func whole(old, next *policy.Rules, ops []op) bool {
	var written [2][]netip.Prefix
	var miss [2]bool
	for _, o := range ops {
		switch o.kind {
		case opPut, opDelete:
			written[o.dir] = append(written[o.dir], o.entry.Prefix)
		case opMiss:
			miss[o.dir] = true
		}
	}
	for _, d := range policy.Directions {
		if miss[d] && len(written[d]) > 0 {
			return false
		}
		slices.SortFunc(written[d], comparePrefixes) // what lies in a prefix follows it
		for i := 1; i < len(written[d]); i++ {
			if written[d][i-1].Overlaps(written[d][i]) {
				return false
			}
		}
	}
	return openIn(old) || openIn(next) || !openIn(old, next)
}

// openIn tells whether each of the words by which the programs find a slot open says so in one of the rules.
func openIn(rules ...*policy.Rules) bool {
	for _, d := range policy.Directions {
		if !slices.ContainsFunc(rules, func(r *policy.Rules) bool { return r.OnMiss[d].Verdict == policy.Allow }) {
			return false
		}
		for _, f := range families {
			if !slices.ContainsFunc(rules, func(r *policy.Rules) bool { return len(ofFamily(r.Entries[d], f)) == 0 }) {
				return false
			}
		}
	}
	return true
}
