package policy

import (
	"encoding/binary"
	"slices"
)

// walk is the state of the walk over the blocks of one direction: which classes are active inside
// the block at the top of the stack.
//
// A state is known by the way to it: the state around it, and what changed at the block. So the
// thousands of blocks at which the same class begins inside the same surroundings are one state,
// whose function is computed once, and no hash has to be trusted for it.
type walk struct {
	rules  *ruleset
	fns    *functions
	stack  []frame
	count  []int32 // by class: rule instances that apply
	queued []bool  // by class: is in its group's heap
	heaps  []heap  // by group: active classes, and inactive ones not yet thrown out
	winner []int32 // by group: first active class, or none
	active []int32 // groups that have a winner
	place  []int32 // by group: index in active
	states map[string]state

	touched []touch
	marked  []bool // by group: in touched
	key     []byte
	winners []int32
}

const none int32 = -1

// frame is a block that the walk is inside of. The lowest frame stands for all addresses.
type frame struct {
	state
	block  block
	events []event
}

// state is a number for a set of winners, and the function that these make.
type state struct{ number, function int32 }

// touch is a group that may have changed, with its winner before.
type touch struct{ group, before int32 }

func newWalk(rs *ruleset, fns *functions) *walk {
	w := &walk{
		rules: rs, fns: fns,
		count:  make([]int32, len(rs.classes)),
		queued: make([]bool, len(rs.classes)),
		heaps:  make([]heap, rs.groups),
		winner: make([]int32, rs.groups),
		place:  make([]int32, rs.groups),
		marked: make([]bool, rs.groups),
		states: make(map[string]state),
	}
	for i := range w.winner {
		w.winner[i] = none
	}
	w.stack = []frame{{state: state{0, fns.of(nil)}}}
	return w
}

func (w *walk) top() *frame { return &w.stack[len(w.stack)-1] }

// leaveUntil leaves the blocks that b is not inside of.
func (w *walk) leaveUntil(b block) {
	for len(w.stack) > 1 && !w.top().block.covers(b) {
		w.apply(w.top().events, -1)
		w.stack = w.stack[:len(w.stack)-1]
	}
}

// enter goes into a block and returns the function that holds there.
func (w *walk) enter(b block, events []event) int32 {
	around := w.top().state
	w.apply(events, 1)
	inside := w.stateAfter(around)
	w.stack = append(w.stack, frame{state: inside, block: b, events: events})
	return inside.function
}

// apply counts the events in or out, then settles the winner of every group they touched.
func (w *walk) apply(events []event, sign int32) {
	w.touched = w.touched[:0]
	for _, e := range events {
		c := e.class
		g := w.rules.classes[c].group
		if !w.marked[g] {
			w.marked[g] = true
			w.touched = append(w.touched, touch{g, w.winner[g]})
		}
		w.count[c] += sign * int32(e.step)
		if w.count[c] > 0 && !w.queued[c] {
			w.queued[c] = true
			w.heaps[g].push(c)
		}
	}
	for _, t := range w.touched {
		w.marked[t.group] = false
		w.settle(t.group)
	}
}

// settle finds the winner of a group, and keeps the list of groups that have one.
func (w *walk) settle(g int32) {
	h := &w.heaps[g]
	for len(*h) > 0 && w.count[(*h)[0]] <= 0 {
		w.queued[h.pop()] = false
	}
	before, now := w.winner[g], none
	if len(*h) > 0 {
		now = (*h)[0]
	}
	w.winner[g] = now
	switch {
	case before == none && now != none:
		w.place[g] = int32(len(w.active))
		w.active = append(w.active, g)
	case before != none && now == none:
		last := w.active[len(w.active)-1]
		w.active[w.place[g]] = last
		w.place[last] = w.place[g]
		w.active = w.active[:len(w.active)-1]
	}
}

// stateAfter returns the state after the last apply, given the state before it.
func (w *walk) stateAfter(around state) state {
	slices.SortFunc(w.touched, func(a, b touch) int { return int(a.group - b.group) })
	w.key = binary.BigEndian.AppendUint32(w.key[:0], uint32(around.number))
	for _, t := range w.touched {
		if now := w.winner[t.group]; now != t.before {
			w.key = binary.BigEndian.AppendUint32(w.key, uint32(t.group))
			w.key = binary.BigEndian.AppendUint32(w.key, uint32(now))
		}
	}
	if len(w.key) == 4 {
		return around
	}
	if s, ok := w.states[string(w.key)]; ok {
		return s
	}
	w.winners = w.winners[:0]
	for _, g := range w.active {
		w.winners = append(w.winners, w.winner[g])
	}
	s := state{number: int32(len(w.states) + 1), function: w.fns.of(w.winners)}
	w.states[string(w.key)] = s
	return s
}

// markUsed notes the ids that occur in a direction's results.
func markUsed(used map[RuleID]struct{}, miss Result, fns *functions) {
	used[miss.Rule] = struct{}{}
	for _, ports := range fns.list {
		for _, p := range ports {
			used[p.Result.Rule] = struct{}{}
		}
	}
}
