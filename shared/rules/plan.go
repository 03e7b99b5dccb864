package rules

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
)

// store is the map that holds a prefix.
type store int

const (
	inHash store = iota
	inTrie
)

// shape is how one direction and family of a slot is looked up: which prefix lengths are probed in
// the hash, longest first, and whether the trie is asked after them.
type shape struct {
	lens []int
	trie bool
}

// shapeOf chooses how entries of one family are stored. Up to four distinct lengths are all probed
// by hash; with more, host prefixes stay in the hash and the rest goes to the trie.
func shapeOf(entries []policy.Entry, f family) shape {
	var present [129]bool
	n := 0
	for _, e := range entries {
		if b := e.Prefix.Bits(); !present[b] {
			present[b] = true
			n++
		}
	}
	if n > bpf.MaxPrefixLens {
		s := shape{trie: true}
		if present[f.hostBits()] {
			s.lens = []int{f.hostBits()}
		}
		return s
	}
	var s shape
	for b := f.hostBits(); b >= 0; b-- {
		if present[b] {
			s.lens = append(s.lens, b)
		}
	}
	return s
}

func (s shape) empty() bool { return len(s.lens) == 0 && !s.trie }

// of tells where a prefix of this shape is stored.
func (s shape) of(p netip.Prefix, f family) store {
	if s.trie && p.Bits() != f.hostBits() {
		return inTrie
	}
	return inHash
}

// word is the shape's lens word in struct slot.
func (s shape) word() uint32 {
	var b [4]byte
	for i, l := range s.lens {
		b[i] = byte(l + 1)
	}
	return binary.LittleEndian.Uint32(b[:])
}

func shapeOfWords(lens, trie uint32) shape {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], lens)
	s := shape{trie: trie != 0}
	for _, l := range b {
		if l == 0 {
			break
		}
		s.lens = append(s.lens, int(l)-1)
	}
	return s
}

// union is the shape in which the entries of both can be found. It reports false when there is
// none: the slot must then be rebuilt elsewhere.
func union(old, next shape, f family) (shape, bool) {
	if old.empty() {
		return next, true
	}
	if next.empty() {
		return old, true
	}
	if old.trie != next.trie {
		return shape{}, false
	}
	lens := slices.Concat(old.lens, next.lens)
	slices.SortFunc(lens, func(a, b int) int { return b - a })
	lens = slices.Compact(lens)
	return shape{lens: lens, trie: old.trie}, len(lens) <= bpf.MaxPrefixLens
}

// opKind is one kind of write into a live slot.
type opKind int

const (
	opLens   opKind = iota // store the lens word
	opTrie                 // store the trie word
	opPut                  // insert a prefix
	opMiss                 // store the result of a miss
	opDelete               // delete a prefix
)

// op is one write. Each is atomic for the packets that look at the slot meanwhile.
type op struct {
	kind   opKind
	dir    policy.Direction
	family family
	store  store
	shape  shape // opLens, opTrie
	entry  policy.Entry
	miss   policy.Result
}

// shapes is how all of a slot is looked up, by direction and family.
type shapes [2][2]shape

func shapesOf(r *policy.Rules) (s shapes) {
	for _, d := range policy.Directions {
		for _, f := range families {
			s[d][f] = shapeOf(ofFamily(r.Entries[d], f), f)
		}
	}
	return s
}

// plan lists the writes that turn old, looked up by shapes, into next: what is new, the result of a miss, what must
// go. A prefix can always be found by the present lengths, and the memory of one that goes is not used by one that
// comes. It is pure. It reports false when that cannot be done within the slot, or when the writes are more than
// limit: those of a large change are not worth their memory, since they are not made.
func plan(old *policy.Rules, now shapes, next *policy.Rules, limit int) ([]op, bool) {
	var puts, misses, deletes, first, last []op
	for _, d := range policy.Directions {
		for _, f := range families {
			was, will := ofFamily(old.Entries[d], f), ofFamily(next.Entries[d], f)
			from, to := now[d][f], shapeOf(will, f)
			both, ok := union(from, to, f)
			if !ok {
				return nil, false
			}
			put, del, ok := diff(was, will, limit-len(puts)-len(deletes))
			if !ok {
				return nil, false
			}
			first = append(first, shapeOps(from, both, d, f)...)
			for _, e := range put {
				puts = append(puts, op{kind: opPut, dir: d, family: f, store: both.of(e.Prefix, f), entry: e})
			}
			for _, e := range del {
				deletes = append(deletes, op{kind: opDelete, dir: d, family: f, store: both.of(e.Prefix, f), entry: e})
			}
			last = append(last, shapeOps(both, to, d, f)...)
		}
		if old.OnMiss[d] != next.OnMiss[d] {
			misses = append(misses, op{kind: opMiss, dir: d, miss: next.OnMiss[d]})
		}
	}
	ops := slices.Concat(first, puts, misses, deletes, last)
	return ops, len(ops) <= limit
}

// shapeOps are the word stores that lead from one shape to another.
func shapeOps(from, to shape, d policy.Direction, f family) []op {
	var ops []op
	if from.word() != to.word() {
		ops = append(ops, op{kind: opLens, dir: d, family: f, shape: to})
	}
	if from.trie != to.trie {
		ops = append(ops, op{kind: opTrie, dir: d, family: f, shape: to})
	}
	return ops
}

// diff compares two sorted lists: what is new and what must go. It reports false as soon as these are more than
// limit, or a prefix is there with another value: Linux replaces an element of a hash by putting the new one in
// front of its chain and then taking the old one out, and a look that is past the front by then finds neither.
func diff(old, next []policy.Entry, limit int) (fresh, gone []policy.Entry, ok bool) {
	i, j := 0, 0
	for i < len(old) || j < len(next) {
		c := 0
		switch {
		case j == len(next):
			c = -1
		case i == len(old):
			c = 1
		default:
			c = comparePrefixes(old[i].Prefix, next[j].Prefix)
		}
		switch {
		case c < 0:
			gone = append(gone, old[i])
			i++
		case c > 0:
			fresh = append(fresh, next[j])
			j++
		case !slices.Equal(old[i].Ports, next[j].Ports):
			return nil, nil, false
		default:
			i++
			j++
		}
		if len(fresh)+len(gone) > limit {
			return nil, nil, false
		}
	}
	return fresh, gone, true
}
