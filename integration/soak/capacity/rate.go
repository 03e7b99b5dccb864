package capacity

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// Rate is how many updates of policy are offered, for how long.
type Rate struct {
	PerSecond int
	Length    time.Duration
}

// offer is what is offered to the identifiers of a node, one policy each, and what came of it. Versions of a
// policy rise by one; what is in force is read from the records, which are written when it is.
type offer struct {
	s     *stage.Stage
	index map[identity.Identifier]int

	mu       sync.Mutex
	policies []stage.Policy
	offered  [][]time.Time // by policy, by version
	applied  []int         // version in force
	latency  []time.Duration
	writes   int // of rules
}

// patienceAfter is how long is waited for what was offered last.
const patienceAfter = 30 * time.Second

// rate offers updates in turn to policies of one identifier each, and tells how long each took to be in
// force, or to be overtaken by a newer one of its policy that is.
func rate(ctx context.Context, s *stage.Stage, started []*stage.Pod, app string, identifiers int, r Rate, tell Figure) (err error) {
	o := &offer{
		s: s, index: map[identity.Identifier]int{},
		offered: make([][]time.Time, identifiers), applied: make([]int, identifiers),
	}
	for i := range identifiers {
		p := stage.Policy{App: fmt.Sprintf("own%d", i), Select: labelsOf(app, i), Peers: 20}
		o.policies = append(o.policies, p)
		o.index[identity.Of(stage.Namespace, p.Select)] = i
	}
	defer func() {
		for _, p := range o.policies {
			_ = s.Delete(p) // the stage ends
		}
	}()
	records, err := newRecords(s)
	if err != nil {
		return err
	}
	followed := make(chan error, 1)
	go func() { followed <- o.follow(records) }()
	defer func() { err = errors.Join(err, records.Close(), <-followed) }()
	for i := range o.policies {
		if err := o.write(i); err != nil {
			return err
		}
	}
	if err := errors.Join(s.Delete(stage.Policy{App: app}), o.settle(ctx)); err != nil {
		return fmt.Errorf("a policy for each identifier: %w", err)
	}
	o.forget()
	watch := stage.NewWatch(5*time.Millisecond, started[:min(len(started), 5)]...)
	defer watch.Stop()
	before, err := measure(s)
	if err != nil {
		return err
	}
	began := time.Now()
	updates, err := o.run(ctx, r)
	if err != nil {
		return err
	}
	took, behind := time.Since(began), o.behind()
	after, err := usage(s)
	if err != nil {
		return err
	}
	err = o.settle(ctx)
	settled := time.Since(began) - took
	latency, writes := o.figures()
	name := fmt.Sprintf("%d updates a second of %d identifiers", r.PerSecond, identifiers)
	tell(name, "%.0f offered and %.0f written a second for %v, in force after p50 %v, p99 %v, %d identifiers behind at the end, all after %v; latchd used %.2f of a processor, held up to %d MB",
		float64(updates)/took.Seconds(), float64(writes)/took.Seconds(), took.Round(time.Second), percentile(latency, 50), percentile(latency, 99), behind,
		settled.Round(time.Millisecond), (after.CPU-before.CPU).Seconds()/took.Seconds(), after.Peak>>20)
	err = errors.Join(err, watch.Stop().Err())
	for i := range min(len(started), 5) {
		err = errors.Join(err, started[i].Follows(o.policies[i].Version, 5*time.Second))
	}
	return err
}

// forget begins anew to count.
func (o *offer) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latency, o.writes = nil, 0
}

// figures are how long updates took, sorted, and how often rules were written.
func (o *offer) figures() (latency []time.Duration, writes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	latency = slices.Clone(o.latency)
	slices.Sort(latency)
	return latency, o.writes
}

// write offers the next version of a policy.
func (o *offer) write(i int) error {
	o.mu.Lock()
	p := &o.policies[i]
	p.Version++
	for len(o.offered[i]) <= p.Version {
		o.offered[i] = append(o.offered[i], time.Now())
	}
	next := *p
	o.mu.Unlock()
	return o.s.Write(next)
}

// run offers updates until the time is up.
func (o *offer) run(ctx context.Context, r Rate) (updates int, err error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < r.Length; {
		select {
		case <-ctx.Done():
			return updates, ctx.Err()
		case <-tick.C:
		}
		due := int(time.Since(began).Seconds() * float64(r.PerSecond))
		for ; updates < due; updates++ {
			if err := o.write(updates % len(o.policies)); err != nil {
				return updates, err
			}
		}
	}
	return updates, nil
}

// follow takes note of what comes into force, until the watcher is closed.
func (o *offer) follow(records *fsnotify.Watcher) (err error) {
	for {
		select {
		case e, ok := <-records.Events:
			if !ok {
				return err
			}
			err = errors.Join(err, o.note(e))
		case lost, ok := <-records.Errors:
			if ok {
				err = errors.Join(err, fmt.Errorf("follow records: %w", lost))
			}
		}
	}
}

// settle waits until everything that was offered is in force.
func (o *offer) settle(ctx context.Context) error {
	return harness.Eventually(ctx, patienceAfter, func() error {
		if n := o.behind(); n > 0 {
			return fmt.Errorf("%d of %d identifiers are behind", n, len(o.policies))
		}
		return nil
	})
}

// behind counts the policies whose newest version is not in force.
func (o *offer) behind() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, p := range o.policies {
		if o.applied[i] < p.Version {
			n++
		}
	}
	return n
}

// note takes note of a record that was written: of which version its rules are.
func (o *offer) note(e fsnotify.Event) error {
	id, ok := strings.CutSuffix(filepath.Base(e.Name), ".json")
	i, known := o.index[identity.Identifier(id)]
	if !ok || !known || !e.Has(fsnotify.Create) {
		return nil
	}
	rec, err := state.New(o.s.Node.StateDir).ReadIdentifier(identity.Identifier(id))
	if err != nil {
		return err
	}
	port := portOf(rec)
	if port < 0 || rec.Running.Hash != rec.Create.Hash {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// The newest version with this port: there are 16.
	version := o.policies[i].Version
	for version > 0 && version%16 != port {
		version--
	}
	if version <= o.applied[i] {
		return nil
	}
	o.writes++
	for v := o.applied[i] + 1; v <= version; v++ {
		o.latency = append(o.latency, max(0, rec.Create.Since.Sub(o.offered[i][v])))
	}
	o.applied[i] = version
	return nil
}

var versionPort = regexp.MustCompile(`/(60[01][0-9])\b`)

// portOf tells which of the 16 version ports the rules of a record open, -1 for none.
func portOf(rec state.IdentifierRecord) int {
	for _, s := range rec.Create.Sources {
		if m := versionPort.FindStringSubmatch(s.Ports); m != nil {
			n, _ := strconv.Atoi(m[1])
			return n - stage.Versions
		}
	}
	return -1
}

func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, len(sorted)*p/100)].Round(time.Millisecond)
}

// newRecords follows the records of identifiers.
func newRecords(s *stage.Stage) (*fsnotify.Watcher, error) {
	w, err := fsnotify.NewBufferedWatcher(100_000)
	if err != nil {
		return nil, err
	}
	if err := w.Add(filepath.Join(s.Node.StateDir, "identifiers")); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}
