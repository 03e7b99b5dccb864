package statuspage

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/latch-cni/latch/shared/view"
)

// content is what the page shows.
type content struct {
	Now      time.Time
	Version  string
	Node     view.Status
	Pods     []view.Pod
	Broken   int
	Policies []selected
	Drops    []view.Counter
	Denies   []view.Event
	NoLog    string // why there are no denies
	Problems []string
}

// selected is a policy and the pods it selects here.
type selected struct {
	Policy  view.Policy
	Pods    []string
	Pending bool // for one of them at least
}

// shownDenies is how many there are on the page.
const shownDenies = 50

func collect(o Options) (content, error) {
	c := content{Now: time.Now(), Version: o.Version}
	n, err := view.Open(o.Bpffs, o.StateDir)
	if err != nil {
		return c, err
	}
	defer func() { _ = n.Close() }()
	if c.Node, err = n.Status(); err != nil {
		c.problem(err)
	}
	if c.Pods, err = n.Pods(); err != nil {
		c.problem(err) // the readable ones are shown
	}
	for _, p := range c.Pods {
		if !p.Healthy {
			c.Broken++
		}
	}
	c.Policies = policies(c.Pods)
	counters, _, err := n.Counters(nil)
	if err != nil && !errors.Is(err, view.ErrNotPinned) {
		c.problem(err)
	}
	c.Drops = slices.DeleteFunc(counters, func(x view.Counter) bool { return x.Verdict != "deny" || x.Packets == 0 })
	slices.SortStableFunc(c.Drops, func(a, b view.Counter) int { return cmp.Compare(b.Packets, a.Packets) })
	c.recent(n)
	return c, nil
}

func (c *content) problem(err error) { c.Problems = append(c.Problems, err.Error()) }

// recent takes the last denied packets from the flow log.
func (c *content) recent(n *view.Node) {
	path, err := n.FlowLog()
	if err != nil {
		c.NoLog = err.Error()
		return
	}
	lines, err := view.Tail(path, 4*shownDenies)
	if err != nil {
		c.NoLog = err.Error()
		return
	}
	owner := n.Owner()
	for _, line := range slices.Backward(lines) {
		e, err := view.ParseEvent(line, owner)
		if err != nil || e.Verdict != "deny" {
			continue
		}
		c.Denies = append(c.Denies, e)
		if len(c.Denies) == shownDenies {
			break
		}
	}
}

func policies(pods []view.Pod) []selected {
	found := map[view.Policy]*selected{}
	add := func(p view.Policy, pod string, pending bool) {
		if found[p] == nil {
			found[p] = &selected{Policy: p}
		}
		found[p].Pending = found[p].Pending || pending
		if !slices.Contains(found[p].Pods, pod) {
			found[p].Pods = append(found[p].Pods, pod)
		}
	}
	for _, pod := range pods {
		for _, p := range pod.Policies {
			add(p, pod.Key(), false)
		}
		for _, p := range pod.Pending {
			add(p, pod.Key(), true)
		}
	}
	var all []selected
	for _, s := range found {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b selected) int { return strings.Compare(a.Policy.String(), b.Policy.String()) })
	return all
}
