package runner

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/scenario"
)

// Options say how scenarios are played. The zero value of a duration is its default.
type Options struct {
	Binaries *harness.Binaries
	Parallel int           // nodes at the same time, default 8
	Settle   time.Duration // no step is judged earlier after its feed, default 700ms
	Patience time.Duration // a step is wrong if it is not right by then, default 8s
	Spread   bool          // one file per object instead of one file per step
	Keep     bool          // leave the nodes' logs and state behind
	Explain  Explainer     // may be nil
	Shuffle  uint64        // seed of a random order, 0 is the order of plan

	LatchdArgs []string
	LatchEntry map[string]any

	// StandIn enforces a state instead of latch and latchd: for tests of the runner itself.
	StandIn func(*harness.Node, scenario.State) error
}

func (o *Options) setDefaults() {
	// On a busy machine latchd reads a step late: that is no verdict.
	entry := map[string]any{"policyWait": "30s", "lockTimeout": "30s"}
	maps.Copy(entry, o.LatchEntry)
	o.LatchEntry = entry
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	if o.Settle == 0 {
		o.Settle = 700 * time.Millisecond
	}
	if o.Patience == 0 {
		o.Patience = 8 * time.Second
	}
}

// maxBatch bounds how many scenarios with the same pods one node plays in a row, so that all nodes
// have work until the end.
const maxBatch = 8

// Run plays all scenarios and reports each as it ends, one at a time. An error means that a node could
// not be made, or that something was left over after it; wrong verdicts are in the reports only.
func Run(ctx context.Context, opts Options, scenarios []*scenario.Scenario, report func(Result)) error {
	opts.setDefaults()
	batches := plan(scenarios)
	if opts.Shuffle != 0 {
		batches = shuffled(scenarios, opts.Shuffle)
	}
	work := make(chan []*scenario.Scenario)
	results := make(chan Result)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(work)
		for _, b := range batches {
			select {
			case work <- b:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for i := range min(opts.Parallel, len(batches)) {
		group.Go(func() error {
			w := &worker{opts: opts, name: fmt.Sprintf("n%d", i)}
			return w.play(ctx, work, results)
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for r := range results {
			report(r)
		}
	}()
	err := group.Wait()
	close(results)
	<-done
	return err
}

// plan sorts scenarios so that those with the same pods follow each other.
func plan(scenarios []*scenario.Scenario) [][]*scenario.Scenario {
	groups := map[string][]*scenario.Scenario{}
	for _, s := range scenarios {
		key := podsKey(s)
		groups[key] = append(groups[key], s)
	}
	var keys []string
	for k := range groups {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if d := len(groups[b]) - len(groups[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var batches [][]*scenario.Scenario
	for _, k := range keys {
		for b := range slices.Chunk(groups[k], maxBatch) {
			batches = append(batches, b)
		}
	}
	return batches
}

// shuffled puts scenarios in a random order, whatever pods they have.
func shuffled(scenarios []*scenario.Scenario, seed uint64) [][]*scenario.Scenario {
	all := slices.Clone(scenarios)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return slices.Collect(slices.Chunk(all, maxBatch))
}

// podsKey names the pods a scenario begins with.
func podsKey(s *scenario.Scenario) string {
	var keys []string
	for _, p := range s.Pods {
		keys = append(keys, fmt.Sprintf("%s=%v", p.Key(), p.IP))
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

// nodeAddrs are the addresses of every node, by the format's description.
var nodeAddrs = []netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("fd77::1")}
