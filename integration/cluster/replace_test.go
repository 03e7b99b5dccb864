package cluster

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Ports of the replaced pod: one is always allowed, of the others each edit allows one.
const (
	always = 7000
	even   = 8000
	odd    = 8001
)

// daemonSets are at work on the node at a time: a replacement waits most of its time for others.
const daemonSets = 4

// testReplace is the fault that the project was started for: a pod is deleted and re-created on the
// same node, under its own name or another, while the endpoints object still lists the old one. It is
// never blocked and never open, and an edit reaches the rules of the pod that is there now.
func testReplace(t *testing.T, cp *controlPlane) {
	rounds := 150
	if s := os.Getenv("LATCH_REPLACEMENTS"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	} else if os.Getenv("CI") == "true" {
		rounds = 2000
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d replacements, seed %d", rounds, seed)
	n := newNode(t, cp, nodeOptions{})
	begin := time.Now()
	t.Run("daemonsets", func(t *testing.T) {
		for i := range daemonSets {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				r := newReplacer(t, n, i, rand.New(rand.NewPCG(seed, uint64(i))))
				for round := range (rounds + i) / daemonSets { // in sum all
					r.replace(round + 1)
				}
			})
		}
	})
	t.Logf("%v each", (time.Since(begin) / time.Duration(rounds)).Round(time.Millisecond))
	if out, err := n.Latchctl(context.Background(), "check"); err != nil {
		t.Errorf("latchctl check: %v\n%s", err, out)
	}
}

// replacer replaces the pod of one DaemonSet.
type replacer struct {
	*node
	rand      *rand.Rand
	app       string
	good, bad *pod
	policy    *policy
	current   *pod
	inbox     *inbox
}

// newReplacer makes a DaemonSet's first pod, one that may send to it and one that may not, on a node that
// others use, too.
func newReplacer(t *testing.T, shared *node, i int, random *rand.Rand) *replacer {
	t.Helper()
	own := *shared
	own.t, own.next = t, i<<10 // addresses
	r := &replacer{node: &own, rand: random, app: fmt.Sprintf("agent%d", i)}
	r.good, r.bad = r.pod("good-"+r.app, object{"app": "good"}).add(), r.pod("bad-"+r.app, object{"app": "bad"}).add()
	r.policy = r.newPolicy(r.app, object{"app": r.app})
	r.allow(0)
	r.policy.apply()
	r.current = r.pod(r.app+"-0", object{"app": r.app}).add()
	r.inbox = r.current.collect(always, even, odd)
	r.policy.lists(r.current).applyEndpoint()
	return r
}

// allow edits the rules for a round. They are not applied yet.
func (r *replacer) allow(round int) {
	r.policy.peers = []object{}
	for _, a := range r.good.addrs {
		r.policy.peers = append(r.policy.peers, object{"cidr": a.String(), "ports": []object{
			{"protocol": "UDP", "port": always}, {"protocol": "UDP", "port": even + round%2}}})
	}
}

func (r *replacer) pause() { time.Sleep(time.Duration(r.rand.IntN(20)) * time.Millisecond) }

// replace replaces the pod once, with the controller's writes at random moments between the steps.
func (r *replacer) replace(round int) {
	old, oldInbox := r.current, r.inbox
	next := &pod{n: r.node, name: old.name}
	sameName := r.rand.IntN(2) == 0
	if !sameName {
		next.name = fmt.Sprintf("%s-%d", r.app, round)
	}
	r.allow(round)
	written, created := make(chan error, 1), make(chan struct{})
	late := func() { // the update for the deletion, which still lists the old pod, then one that lists the new
		pause, between := time.Duration(r.rand.IntN(60)), time.Duration(r.rand.IntN(20))
		go func() {
			time.Sleep(pause * time.Millisecond)
			err := r.policy.lists(old).tryApplyEndpoint()
			<-created
			time.Sleep(between * time.Millisecond)
			if err == nil {
				err = r.policy.lists(next).tryApplyEndpoint()
			}
			written <- err
		}()
	}
	forget := func() { old.forget() }
	create := func() {
		next.create(object{"app": r.app})
		close(created)
	}
	add := func() {
		r.must(next.tryAdd())
		r.current, r.inbox = next, next.collect(always, even, odd)
		r.check("at ADD's return", round, nil)
	}
	del := func() { oldInbox.close(); old.del() }
	// Any order that can happen: a name is free when its object is gone, DEL comes whenever it likes.
	orders := [][]func(){{late, forget, create, add, del}, {forget, late, create, add, del}, {forget, late, del, create, add},
		{forget, create, late, add, del}, {late, forget, del, create, add}}
	if !sameName {
		orders = append(orders, []func(){create, late, add, forget, del}, []func(){create, add, late, forget, del},
			[]func(){late, create, add, del, forget}, []func(){create, add, late, del, forget})
	}
	for _, step := range orders[r.rand.IntN(len(orders))] {
		step()
		r.pause()
	}
	r.must(<-written)
	want := round
	begin := time.Now()
	for !r.check("after the edit", round, &want) {
		if time.Since(begin) > inForce {
			r.t.Fatalf("round %d: the edit is not in force after %v", round, inForce)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// check sends from both. It says whether the rules of an edit are in force, and nothing else.
func (r *replacer) check(when string, round int, edit *int) bool {
	got, err := r.shower(fmt.Sprint(time.Now().UnixNano()), r.current, r.inbox, []*pod{r.bad, r.good}, always, even, odd)
	if err != nil {
		r.t.Fatalf("round %d, %s: %v", round, when, err)
	}
	var open [2]bool
	for what := range got {
		if !strings.HasPrefix(what, r.good.name+" ") {
			r.t.Fatalf("round %d, %s: open: %q arrived", round, when, slices.Sorted(maps.Keys(got)))
		}
		open[0] = open[0] || strings.HasSuffix(what, strconv.Itoa(even))
		open[1] = open[1] || strings.HasSuffix(what, strconv.Itoa(odd))
	}
	return edit == nil || open[*edit%2] && !open[(*edit+1)%2]
}
