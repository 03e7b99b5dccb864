package reconcile

import (
	"sync"

	"github.com/latch-cni/latch/shared/policy"
)

// compiled remembers compiled rules by the key of their input: many identifiers have the same policies,
// and an audit asks for what was compiled before. Rules are immutable.
type compiled struct {
	mu    sync.Mutex
	rules map[string]*policy.Rules
	old   map[string]*policy.Rules // the generation before
}

// maxCompiled is how many rule sets a generation holds.
const maxCompiled = 512

// get returns the rules of an input, compiling them if need be.
func (c *compiled) get(key string, in policy.Input) *policy.Rules {
	c.mu.Lock()
	r, ok := c.rules[key]
	if !ok {
		r, ok = c.old[key]
	}
	c.mu.Unlock()
	if !ok {
		r = policy.Compile(in)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules == nil || len(c.rules) >= maxCompiled {
		c.old, c.rules = c.rules, map[string]*policy.Rules{}
	}
	c.rules[key] = r
	return r
}
