package regress

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// Races: pods of a few identifiers are added and deleted in parallel, while their policies are edited
// every few milliseconds and their labels change. While it lasts, no pod is ever open to C; afterwards
// every pod's program is the pinned one, its binding the recorded one, the kernel's rules the compiled
// ones, and the last edit is in force. After the last DEL nothing is left.
func TestRaces(t *testing.T) {
	lives := 3 // of each pod
	if testing.Short() {
		lives = 1
	}
	const pods, identifiers = 64, 16
	g := newGround(t, options{})
	g.start("A", testenv.PodA)
	g.start("C", testenv.PodC)
	for i := range identifiers {
		g.apply(raceText(i, "tcp/1000"))
	}
	var all []*racer
	for i := range pods {
		all = append(all, g.newRacer(i, identifiers))
	}
	stop := make(chan struct{})
	var edits atomic.Int64
	var editors sync.WaitGroup
	editors.Go(func() { // policies
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
			}
			pe := g.policy(raceText(rand.IntN(identifiers), fmt.Sprintf("tcp/%d", 1001+n%1000)))
			if err := g.put(pe.file(), pe.manifest()); err != nil {
				t.Error(err)
				return
			}
			edits.Add(1)
		}
	})
	editors.Go(func() { // labels
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			r := all[rand.IntN(pods)]
			if err := g.put(r.file, r.labelled(rand.IntN(identifiers))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	knocks := g.knockAll(all)

	work := make(chan *racer, pods)
	for _, r := range all {
		work <- r
	}
	var workers sync.WaitGroup
	var took []time.Duration
	var mu sync.Mutex
	for range 16 { // at a time; a runtime does not start more on two processors
		workers.Go(func() {
			for {
				select {
				case r := <-work:
					d, err := r.live()
					mu.Lock()
					took = append(took, d...)
					mu.Unlock()
					if err != nil {
						t.Errorf("%s: %v", r.spec.Name, err)
					} else if r.lives < lives {
						work <- r
					}
				default:
					return
				}
			}
		})
	}
	workers.Wait()
	for _, r := range all { // the last life stays
		if err := r.begin(); err != nil {
			t.Errorf("%s: %v", r.spec.Name, err)
		}
	}
	close(stop)
	editors.Wait()
	knocks()
	if t.Failed() {
		return
	}
	g.settled(all, identifiers)
	t.Logf("%d lives, %d edits of policies; ADD %s", len(took), edits.Load(), percentiles(took))
}

func raceText(i int, port string) string {
	return fmt.Sprintf("t1/race%d app=r%d IE\nI A tcp/8080\nE web %s", i, i, port)
}

// settled requires that the last policy and the last labels are in force everywhere.
func (g *ground) settled(all []*racer, identifiers int) {
	g.t.Helper()
	for i := range identifiers {
		g.apply(raceText(i, "tcp/4000"))
	}
	var table string
	for i, r := range all {
		g.ends[r.spec.Name].out = r.ns.Injector(g.t, "eth0")
		g.write(r.file, r.labelled(i%identifiers))
		table += fmt.Sprintf(`
			A > %[1]s tcp/8080 : allow
			C > %[1]s tcp/8080 : deny
			%[1]s > web tcp/4000 : allow
			%[1]s > web tcp/1000 : deny`, r.spec.Name)
	}
	g.within(5*time.Second, "after the races", table)
	g.expect("after the races", table)
	g.healthy()
	records, err := g.store().ListIdentifiers()
	if err != nil {
		g.t.Fatal(err)
	}
	if len(records) != identifiers+2 { // and those of A and C
		g.t.Errorf("%d identifiers are recorded, want %d", len(records), identifiers+2)
	}
}
