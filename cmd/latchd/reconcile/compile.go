package reconcile

import (
	"fmt"
	"strings"
	"sync"
	"weak"

	"github.com/latch-cni/latch/shared/policy"
)

// compiled remembers compiled rules by the key of their input: many identifiers have the same policies,
// and an audit asks for what was compiled before. Rules are immutable.
type compiled struct {
	mu     sync.Mutex
	rules  map[string]*policy.Rules
	weight int                                   // of rules
	old    map[string]weak.Pointer[policy.Rules] // the generation before: what of it is in the kernel is still held
}

// maxCompiled is how much a generation holds, in prefixes and breakpoints of ports: some 30 MB.
// Every edit of a policy makes a new input, so large policies that change often would fill the memory.
const maxCompiled = 1 << 19

// weigh tells how much memory rules take.
func weigh(r *policy.Rules) int {
	weight := 1
	for _, d := range policy.Directions {
		for _, e := range r.Entries[d] {
			weight += 1 + len(e.Ports)
		}
	}
	return weight
}

// maxBreakpoints is how large the flattened policies of one identifier may be: 8 MB in the kernel. Rules
// with ports of their own on blocks inside each other multiply, and anybody who may write a policy could
// use up the memory of every node.
const maxBreakpoints = 1 << 20

// get returns the rules of an input, compiling them if need be. The error names the policies.
func (c *compiled) get(key string, in policy.Input) (*policy.Rules, error) {
	c.mu.Lock()
	r := c.rules[key]
	if r == nil {
		r = c.old[key].Value()
	}
	c.mu.Unlock()
	if r == nil {
		var err error
		if r, err = policy.CompileWithin(in, maxBreakpoints); err != nil {
			return nil, fmt.Errorf("policies %s: %w: name fewer single ports, or fewer blocks inside others", names(in), err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.rules[key]; ok {
		return r, nil
	}
	if c.rules == nil || c.weight >= maxCompiled {
		c.old = make(map[string]weak.Pointer[policy.Rules], len(c.rules))
		for key, r := range c.rules {
			c.old[key] = weak.Make(r)
		}
		c.rules, c.weight = map[string]*policy.Rules{}, 0
	}
	c.rules[key] = r
	c.weight += weigh(r)
	return r, nil
}

// names lists the policies of an input for people.
func names(in policy.Input) string {
	var all []string
	for _, p := range in.Policies {
		all = append(all, p.Ref.String())
	}
	for _, p := range in.Cluster {
		all = append(all, p.Ref.String())
	}
	return strings.Join(all, ", ")
}
